; The vendor commands: configuration blocks, flash, firmware, XDATA, restart. A handler finds its CDB through
; CDB_POINTER. It returns in R7 how the command continues.

; --- E2: reads the flash from a part's start
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
	; Begins like any long reply, but the loop below sends it, because the flash's bytes are not in memory beforehand.
	mov	r7, #0
	lcall	BEGIN_REPLY
	lcall	NOTE_SHORT
	mov	r7, #1
	lcall	ANNOUNCE
	lcall	buffer_for_flash
	; TEMP + 1..3: flash address
	mov	dptr, #PART
	movx	a, @dptr
	mov	r7, a
	xrl	a, #1
	mov	TEMP + 2, a
	mov	dptr, #SLOT_BIT
	movx	a, @dptr
	add	a, acc
	add	a, r7
	mov	TEMP + 1, a
	mov	TEMP + 3, #0
read_chunk:
	; R6:R7 = the lesser of LENGTH and a packet. SEND_IN will arm as many bytes.
	mov	dptr, #REPLY_PACKET
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r7, a
	mov	a, LENGTH + 1
	jnz	5$
	mov	a, LENGTH + 2
	orl	a, LENGTH + 3
	jz	read_end
	clr	c
	mov	a, LENGTH + 3
	subb	a, r7
	mov	a, LENGTH + 2
	subb	a, r6
	jnc	5$
	mov	r6, LENGTH + 2
	mov	r7, LENGTH + 3
5$:	mov	dptr, #FLASH_LEN
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
	lcall	read_flash
	lcall	SEND_IN
	lcall	WAIT_PACKET
	mov	r7, #NO_ANSWER
	jc	read_over
	; Advances the address and LENGTH by the bytes that were read
	mov	dptr, #FLASH_LEN
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r7, a
	add	a, TEMP + 3
	mov	TEMP + 3, a
	mov	a, TEMP + 2
	addc	a, r6
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
	sjmp	read_chunk
	; The host has its data, so it expects none any more.
read_end:
	clr	a
	mov	r7, a
	mov	r6, a
	mov	r5, a
	mov	r4, a
	mov	r0, #HOST_LENGTH
	lcall	STORE_DWORD
	mov	r7, #ANSWER
read_over:
	ret

; --- E4: reads XDATA, with a length of one byte
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
	; Past 0xFFFF the main page wraps to its beginning; the other page continues in the next one
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

; --- E0: reads a configuration block
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
	mov	dptr, #SLOT_BIT
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

; --- E1: writes a configuration block
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

; --- E3: writes the firmware
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

; --- E5: writes a byte to XDATA
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
