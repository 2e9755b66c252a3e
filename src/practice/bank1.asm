; The practice image's bank 1: the vendor commands. See practice.md and map.inc.
	.module	bank1
	.include "map.inc"
	.area	BANK1 (ABS,CODE)

; A handler finds its CDB through CDB_POINTER and returns in R7 how the command goes on.

; --- E2: the flash, from a part's start on
	.org	FLASH_READ
flash_read:
	lcall	mode_of_part
	jnc	1$
	ljmp	invalid_field
1$:	lcall	length_of_cdb
	; at most 0x10000 bytes
	mov	a, r4
	jnz	2$
	mov	a, r5
	jz	4$
	cjne	a, #1, 2$
	mov	a, r6
	orl	a, r7
	jz	4$
2$:	ljmp	invalid_field
4$:	lcall	host_length
	mov	r0, #LENGTH
	lcall	STORE_DWORD
	lcall	buffer_for_flash
	; TEMP + 1..3: flash address
	mov	dptr, #PART
	movx	a, @dptr
	mov	r7, a
	xrl	a, #1
	mov	TEMP + 2, a
	mov	dptr, #SLOT
	movx	a, @dptr
	add	a, acc
	add	a, r7
	mov	TEMP + 1, a
	mov	TEMP + 3, #0
read_chunk:
	; n = min(left, 0x400)
	mov	r6, LENGTH + 2
	mov	r7, LENGTH + 3
	mov	a, LENGTH + 1
	jnz	5$
	mov	a, r6
	orl	a, r7
	jz	read_end
	mov	a, r6
	anl	a, #0xFC
	jz	6$
5$:	mov	r6, #0x04
	mov	r7, #0x00
6$:	mov	dptr, #FLASH_LEN
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #IN_LENGTH
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #FLASH_ADDR + 1
	mov	a, TEMP + 1
	movx	@dptr, a
	inc	dptr
	mov	a, TEMP + 2
	movx	@dptr, a
	inc	dptr
	mov	a, TEMP + 3
	movx	@dptr, a
	; chunks are full until the last, so only the address's upper bytes matter
	mov	a, TEMP + 2
	add	a, r6
	mov	TEMP + 2, a
	clr	a
	addc	a, TEMP + 1
	mov	TEMP + 1, a
	clr	c
	mov	a, LENGTH + 3
	subb	a, r7
	mov	LENGTH + 3, a
	mov	a, LENGTH + 2
	subb	a, r6
	mov	LENGTH + 2, a
	mov	a, LENGTH + 1
	subb	a, #0
	mov	LENGTH + 1, a
	lcall	read_flash
	mov	dptr, #USB_DONE
	mov	a, #0x08
	movx	@dptr, a
	inc	dptr
	mov	a, #0x02
	movx	@dptr, a
	mov	dptr, #USB_DONE
7$:	movx	a, @dptr
	jnb	acc.3, 7$
	mov	a, #0x08
	movx	@dptr, a
	sjmp	read_chunk
read_end:
	clr	a
	mov	r7, a
	mov	r6, a
	mov	r5, a
	mov	r4, a
	mov	r0, #HOST_LENGTH
	lcall	STORE_DWORD
	mov	r7, #ANSWER
	ret

; --- E4: XDATA, one byte of length
	.org	XDATA_READ
xdata_read:
	mov	r5, #2
	lcall	cdb_byte
	mov	r7, a
	xrl	a, #0x50
	jz	mode_known
	dec	a
	jz	mode_known
	ljmp	invalid_field
	.org	0xC9A8
mode_known:
	mov	r7, #1
	lcall	WAKE
	clr	a
	mov	r6, a
	mov	r5, a
	mov	r4, a
	mov	TEMP, a
	mov	r5, #1
	lcall	cdb_byte
	mov	r7, a
	mov	r5, #0
	mov	r0, #LENGTH
	lcall	STORE_DWORD
	lcall	host_length
	mov	dptr, #IN_LENGTH
	clr	a
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	mov	r5, #3
	lcall	cdb_byte
	mov	TEMP + 3, a
	mov	r5, #4
	lcall	cdb_byte
	mov	TEMP + 4, a
	mov	r5, #2
	lcall	cdb_byte
	anl	a, #1
	mov	dptr, #PAGE_FLAG
	movx	@dptr, a
	inc	a
	mov	TEMP + 2, a		; 1 the main page, 2 the other: a generic pointer's type
e4_byte:
	mov	a, TEMP
	xrl	a, LENGTH + 3
	jz	e4_done
	mov	a, TEMP
	add	a, TEMP + 4
	mov	r1, a
	clr	a
	addc	a, TEMP + 3
	mov	r2, a
	mov	a, TEMP + 2
	mov	r3, a
	; past 0xFFFF the main page begins again, the other page goes on into the next
	jnb	psw.7, 1$
	cjne	r3, #1, 2$
	sjmp	1$
2$:	inc	r3
1$:	lcall	LOAD_GENERIC
	mov	dpl, TEMP
	mov	dph, #>DATA_BUFFER
	movx	@dptr, a
	inc	TEMP
	sjmp	e4_byte
e4_done:
	mov	r7, #DATA_IN
	ret

; --- INQUIRY: 36 bytes, or as many as asked for
	.org	INQUIRY
inquiry:
	mov	r5, #4
	lcall	cdb_byte
	mov	r7, a
	clr	c
	subb	a, #inquiry_end - inquiry_data
	jc	1$
	mov	r7, #inquiry_end - inquiry_data
1$:	mov	TEMP, #0
2$:	mov	a, TEMP
	xrl	a, r7
	jz	answer_from_buffer
	mov	dptr, #inquiry_data
	mov	a, TEMP
	movc	a, @a+dptr
	mov	dpl, TEMP
	mov	dph, #>DATA_BUFFER
	movx	@dptr, a
	inc	TEMP
	sjmp	2$

; R7 bytes of the data buffer go in.
answer_from_buffer:
	clr	a
	mov	r6, a
	mov	r5, a
	mov	r4, a
	mov	r0, #LENGTH
	lcall	STORE_DWORD
	lcall	host_length
	mov	dptr, #IN_LENGTH
	clr	a
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	mov	r7, #DATA_IN
	ret

inquiry_data:
	.db	0x00, 0x00, 0x06, 0x02, inquiry_end - inquiry_data - 5, 0, 0, 0
	.ascii	"asmpatch"
	.ascii	"practice image  "
	.ascii	"0001"
inquiry_end:

; --- REQUEST SENSE: 18 bytes in fixed format, and the sense is gone
	.org	REQUEST_SENSE
request_sense:
	mov	dptr, #DATA_BUFFER
	mov	r6, #18
	clr	a
1$:	movx	@dptr, a
	inc	dptr
	djnz	r6, 1$
	mov	dptr, #DATA_BUFFER
	mov	a, #0x70
	movx	@dptr, a
	mov	dptr, #DATA_BUFFER + 7
	mov	a, #10
	movx	@dptr, a
	mov	dptr, #SENSE_KEY
	mov	r6, #2
	lcall	take_sense
	mov	dptr, #SENSE_ASC
	mov	r6, #12
	lcall	take_sense
	mov	dptr, #SENSE_ASCQ
	mov	r6, #13
	lcall	take_sense
sense_asked:
	mov	r5, #4
	lcall	cdb_byte
	mov	r7, a
	clr	c
	subb	a, #18
	jc	1$
	mov	r7, #18
1$:	ljmp	answer_from_buffer
take_sense:
	movx	a, @dptr
	mov	r5, a
	clr	a
	movx	@dptr, a
	mov	a, r5
	mov	dpl, r6
	mov	dph, #>DATA_BUFFER
	movx	@dptr, a
	ret

; --- E0: a configuration block
	.org	CONFIG_READ
config_read:
	lcall	mode_of_block
	jnc	1$
	ljmp	invalid_field
1$:	mov	r7, #0x80
	mov	r6, #0
	mov	r5, #0
	mov	r4, #0
	lcall	host_length
	mov	r0, #LENGTH
	lcall	STORE_DWORD
	lcall	buffer_for_flash
	clr	a
	mov	dptr, #FLASH_LEN
	movx	@dptr, a
	inc	dptr
	mov	a, #0x80
	movx	@dptr, a
	mov	dptr, #SLOT
	movx	a, @dptr
	add	a, acc
	mov	dptr, #FLASH_ADDR + 1
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	mov	dptr, #BLOCK
	movx	a, @dptr
	rr	a			; 0 or 0x80
	mov	dptr, #FLASH_ADDR + 3
	movx	@dptr, a
	lcall	read_flash
	mov	dptr, #IN_LENGTH
	clr	a
	movx	@dptr, a
	inc	dptr
	mov	a, #0x80
	movx	@dptr, a
	mov	r7, #DATA_IN
	ret

; --- E3: the firmware
	.org	FIRMWARE_WRITE
firmware_write:
	lcall	mode_of_part
	jnc	1$
	ljmp	invalid_field
1$:	lcall	length_of_cdb
	; part 1 at most 0xFF00 bytes, part 2 at most 0x10000
	mov	a, r4
	jnz	3$
	mov	a, r5
	jnz	2$
	mov	a, r6
	cjne	a, #0xFF, 4$
	mov	a, r7
	jz	4$
	mov	dptr, #PART
	movx	a, @dptr
	jnz	4$
	sjmp	3$
2$:	cjne	a, #1, 3$
	mov	a, r6
	orl	a, r7
	jnz	3$
	mov	dptr, #PART
	movx	a, @dptr
	jnz	4$
3$:	ljmp	invalid_field
4$:	lcall	host_length
	mov	r0, #LENGTH
	lcall	STORE_DWORD
	clr	a
	mov	r7, a
	mov	r6, a
	mov	r5, a
	mov	r4, a
	mov	r0, #OFFSET
	lcall	STORE_DWORD
	mov	r7, #DATA_OUT
	ret

; --- E5: a byte into XDATA
	.org	XDATA_WRITE
xdata_write:
	mov	r5, #2
	lcall	cdb_byte
	mov	r7, a
	xrl	a, #0x50
	jz	1$
	dec	a
	jz	1$
	ljmp	invalid_field
1$:	mov	a, r7
	anl	a, #1
	mov	dptr, #PAGE_FLAG
	movx	@dptr, a
	mov	r7, #1
	lcall	WAKE
	mov	r5, #1
	lcall	cdb_byte
	mov	r7, a
	mov	r5, #3
	lcall	cdb_byte
	mov	r6, a
	mov	r5, #4
	lcall	cdb_byte
	mov	r1, a
	mov	a, r6
	mov	r2, a
	mov	dptr, #PAGE_FLAG
	movx	a, @dptr
	inc	a
	mov	r3, a
	mov	a, r7
	lcall	STORE_GENERIC
	ljmp	no_data

; --- E8: reset
	.org	RESET
reset:
	lcall	mode_of_cdb
	jnc	1$
	mov	r3, #0x00
	mov	r5, #0x20
	ljmp	illegal_request
1$:	mov	a, r7
	mov	r6, #0x60
	jnb	acc.0, 2$
	mov	r6, #0x8A
2$:	mov	a, r6
	mov	dptr, #RESET_STATE
	movx	@dptr, a
no_data:
	clr	a
	mov	r7, a
	mov	r6, a
	mov	r5, a
	mov	r4, a
	lcall	host_length
	mov	r7, #ANSWER
	ret

; ---------------------------------------------------------------------------------------------------------------
; A = CDB byte R5. Uses R1 to R3.
	.org	0xE000
cdb_byte:
	mov	dptr, #CDB_POINTER
	lcall	LOAD_POINTER
	mov	a, r5
	add	a, #CDB_AT
	add	a, r1
	mov	r1, a
	clr	a
	addc	a, r2
	mov	r2, a
	ljmp	LOAD_GENERIC

; R4 to R7 = CDB bytes 2 to 5.
length_of_cdb:
	mov	r5, #5
	lcall	cdb_byte
	mov	r7, a
	mov	r5, #4
	lcall	cdb_byte
	mov	r6, a
	mov	r5, #2
	lcall	cdb_byte
	mov	r4, a
	mov	r5, #3
	lcall	cdb_byte
	mov	r5, a
	ret

; R7 = CDB byte 1, and carry set unless it is 0x50 or 0x51.
mode_of_cdb:
	mov	r5, #1
	lcall	cdb_byte
	mov	r7, a
	anl	a, #0xFE
mode_checked:
	cjne	a, #0x50, 1$
	clr	c
	ret
1$:	setb	c
	ret

; The same for E2 and E3, where bit 7 tells the part. Sets SLOT and PART.
mode_of_part:
	mov	r5, #1
	lcall	cdb_byte
	mov	r7, a
	anl	a, #1
	mov	dptr, #SLOT
	movx	@dptr, a
	mov	a, r7
	rl	a
	anl	a, #1
	mov	dptr, #PART
	movx	@dptr, a
	mov	a, r7
	anl	a, #0x7E
	sjmp	mode_checked

; The same for E0 and E1, whose block is CDB byte 2. Sets SLOT and BLOCK.
mode_of_block:
	mov	r5, #2
	lcall	cdb_byte
	mov	dptr, #BLOCK
	movx	@dptr, a
	clr	c
	mov	r5, a
	mov	a, #1
	subb	a, r5
	jc	1$
	lcall	mode_of_cdb
	mov	a, r7
	anl	a, #1
	mov	dptr, #SLOT
	movx	@dptr, a
1$:	ret

; HOST_LENGTH = R4 to R7, while Bulk-Only.
host_length:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jnb	acc.0, 1$
	mov	r0, #HOST_LENGTH
	lcall	STORE_DWORD
1$:	ret

; The flash buffer is filled by the flash controller, not by the host.
buffer_for_flash:
	mov	dptr, #BUFFER_OWNER
	movx	a, @dptr
	anl	a, #0xF9
	movx	@dptr, a
	ret

; Reads FLASH_LEN bytes at FLASH_ADDR into the flash buffer.
read_flash:
	mov	r7, #0x03
	mov	r5, #3
	clr	a
	mov	r4, a
	mov	r3, a
	mov	r2, a
	ljmp	0x0480			; common's flash_command

invalid_field:
	mov	r3, #0x00
	mov	r5, #0x24
illegal_request:
	mov	r7, #0x05
	lcall	SET_SENSE
	mov	r7, #ANSWER
	ret

; --- E1: a configuration block
	.org	CONFIG_WRITE
config_write:
	lcall	mode_of_block
	jnc	1$
	ljmp	invalid_field
1$:	mov	r7, #0x80
	mov	r6, #0
	mov	r5, #0
	mov	r4, #0
	lcall	host_length
	mov	r0, #LENGTH
	lcall	STORE_DWORD
	mov	r7, #DATA_OUT
	ret
