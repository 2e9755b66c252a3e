; The practice image's common code and bank 0: start-up, bank switching, dispatch, status, flash programming.
; See practice.md for what the image is, and map.inc for the addresses.
	.module	common
	.include "map.inc"
	.area	COMMON (ABS,CODE)

	.org	0x0000
	ljmp	start
	.org	0x0003
	reti
	.org	0x000B
	reti
	.org	0x0013
	reti
	.org	0x001B
	reti
	.org	0x0023
	reti

start:	mov	sp, #0x72
	mov	BANK_RETURN, #0x0A
	mov	BANK, #0
	mov	XPAGE, #0
	; The command's context block, where a unit's firmware has its slot table.
	mov	dptr, #CDB_POINTER
	mov	a, #1
	movx	@dptr, a
	inc	dptr
	mov	a, #0x20
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	mov	r7, #6
	mov	r6, #0
1$:	mov	a, r6
	mov	dptr, #version
	movc	a, @a+dptr
	mov	dptr, #VERSION_COPY
	mov	r5, a
	mov	a, r6
	add	a, dpl
	mov	dpl, a
	mov	a, r5
	movx	@dptr, a
	inc	r6
	djnz	r7, 1$
idle:	sjmp	idle

	.org	0x0200
version:
	.db	0x26, 0x11, 0x21, 0x00, 0x00, 0x01

; ---------------------------------------------------------------------------------------------------------------
; Calls across banks. DPTR is the target; the target returns into the caller's own bank's stub, 0x030A or 0x031B,
; whose low byte is at BANK_RETURN.
	.org	ENTER_BANK0
enter_bank0:
	push	BANK_RETURN
	mov	a, #0x03
	push	acc
	sjmp	into_bank0
	.org	0x030A
return_bank0:
	mov	BANK, #0
	mov	BANK_RETURN, #0x0A
	ret
	.org	ENTER_BANK1
enter_bank1:
	push	BANK_RETURN
	mov	a, #0x03
	push	acc
	sjmp	into_bank1
	.org	0x031B
return_bank1:
	mov	BANK, #1
	mov	BANK_RETURN, #0x1B
	ret
into_bank0:
	push	dpl
	push	dph
	sjmp	return_bank0
into_bank1:
	push	dpl
	push	dph
	sjmp	return_bank1

config_read:
	mov	dptr, #CONFIG_READ
	sjmp	ENTER_BANK1
config_write:
	mov	dptr, #CONFIG_WRITE
	sjmp	ENTER_BANK1
flash_read:
	mov	dptr, #FLASH_READ
	sjmp	ENTER_BANK1
firmware_write:
	mov	dptr, #FIRMWARE_WRITE
	sjmp	ENTER_BANK1
xdata_read:
	mov	dptr, #XDATA_READ
	sjmp	ENTER_BANK1
xdata_write:
	mov	dptr, #XDATA_WRITE
	sjmp	ENTER_BANK1
reset:	mov	dptr, #RESET
	sjmp	ENTER_BANK1
inquiry:
	mov	dptr, #INQUIRY
	sjmp	ENTER_BANK1
request_sense:
	mov	dptr, #REQUEST_SENSE
	sjmp	ENTER_BANK1

	.org	0x0480
flash_command:
	mov	dptr, #FLASH_COMMAND_0
	ljmp	ENTER_BANK0
program:
	mov	dptr, #PROGRAM_0
	ljmp	ENTER_BANK0
erase:	mov	dptr, #ERASE_0
	ljmp	ENTER_BANK0

	.org	WAKE
wake:
	mov	dptr, #WAKE_0
	ljmp	ENTER_BANK0

; ---------------------------------------------------------------------------------------------------------------
; Bytes through a generic pointer in R3:R2:R1: type 0 is IDATA, 1 XDATA, 2 and up XDATA page type - 1, 0xFF code.
	.org	LOAD_GENERIC
load_generic:
	mov	a, r3
	jz	2$
	mov	dpl, r1
	mov	dph, r2
	inc	a
	jz	1$
	mov	XPAGE, r3
	dec	XPAGE
	movx	a, @dptr
	mov	XPAGE, #0
	ret
1$:	movc	a, @a+dptr
	ret
2$:	mov	a, @r1
	ret

	.org	STORE_GENERIC
store_generic:
	cjne	r3, #0, 1$
	mov	@r1, a
	ret
1$:	mov	dpl, r1
	mov	dph, r2
	mov	XPAGE, r3
	dec	XPAGE
	movx	@dptr, a
	mov	XPAGE, #0
	ret

; The dword at IDATA @R0 into R4 to R7, high byte first.
	.org	LOAD_DWORD
load_dword:
	mov	a, r0
	add	a, #3
	mov	r0, a
	mov	a, @r0
	mov	r7, a
	dec	r0
	mov	a, @r0
	mov	r6, a
	dec	r0
	sjmp	load_high

; R4 to R7 into the dword at IDATA @R0.
	.org	STORE_DWORD
store_dword:
	mov	@r0, 0x04
	inc	r0
	mov	@r0, 0x05
	inc	r0
	mov	@r0, 0x06
	inc	r0
	mov	@r0, 0x07
	ret
load_high:
	mov	a, @r0
	mov	r5, a
	dec	r0
	mov	a, @r0
	mov	r4, a
	ret

; The generic pointer at XDATA @DPTR into R3:R2:R1.
	.org	LOAD_POINTER
load_pointer:
	movx	a, @dptr
	inc	dptr
	mov	r3, a
	movx	a, @dptr
	inc	dptr
	mov	r2, a
	movx	a, @dptr
	mov	r1, a
	ret

; Jumps by A through the table behind the call: entries of target and value, 3 bytes each, then 00 00 and the
; target for every other value.
	.org	CASE
case:
	pop	dph
	pop	dpl
	mov	r0, a
1$:	clr	a
	movc	a, @a+dptr
	mov	r1, a
	mov	a, #1
	movc	a, @a+dptr
	orl	a, r1
	jz	2$
	mov	a, #2
	movc	a, @a+dptr
	xrl	a, r0
	jz	3$
	inc	dptr
	inc	dptr
	inc	dptr
	sjmp	1$
2$:	inc	dptr
	inc	dptr
3$:	clr	a
	movc	a, @a+dptr
	push	acc
	mov	a, #1
	movc	a, @a+dptr
	pop	dph
	mov	dpl, a
	clr	a
	jmp	@a+dptr

; ---------------------------------------------------------------------------------------------------------------
; Queues a transfer of the data buffer; R7 bit 1 set for a read. Returns the status in R7.
	.org	QUEUE
queue:
	mov	dptr, #DIRECTION
	mov	a, r7
	movx	@dptr, a
	; Blocks: the low 16 bits, from READ(10)'s bytes 7 and 8 or READ(16)'s bytes 12 and 13.
	mov	dptr, #CDB_POINTER
	lcall	LOAD_POINTER
	mov	dptr, #OPCODE
	movx	a, @dptr
	mov	r5, #CDB_AT + 7
	jnb	acc.7, 1$
	mov	r5, #CDB_AT + 12
1$:	mov	a, r1
	add	a, r5
	mov	r1, a
	clr	a
	addc	a, r2
	mov	r2, a
	lcall	LOAD_GENERIC
	mov	r6, a
	inc	r1
	cjne	r1, #0, 2$
	inc	r2
2$:	lcall	LOAD_GENERIC
	mov	r5, a
	mov	dptr, #0xC426
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r5
	movx	@dptr, a
	orl	a, r6
	jnz	3$
	mov	r7, #ANSWER		; nothing to move
	ret
3$:	mov	dptr, #DIRECTION
	movx	a, @dptr
	mov	r7, a
	mov	dptr, #0xC412
	movx	a, @dptr
	orl	a, #1
	mov	c, acc.0
	mov	b, r7
	jnb	b.1, 4$
	clr	acc.0
4$:	movx	@dptr, a
	ljmp	queue_direction
	.org	0x28D0
queue_direction:
	jnb	b.1, 1$
	ljmp	queued_read
1$:	ljmp	queued_write
	.org	0x29AD
queued_read:
	mov	r7, #READ_QUEUED
	ret
queued_write:
	; What waits for this write is an NVMe completion.
	mov	dptr, #0x0470
	mov	a, #0x0E
	movx	@dptr, a
	ljmp	write_status
	.org	0x2A0D
write_status:
	mov	r7, #WRITE_QUEUED
	ret

; The same over Bulk-Only, where the data waits for the direction's own engine: 3 a read, 4 a write.
	.org	QUEUE_BULK
queue_bulk:
	lcall	QUEUE
	mov	a, r7
	xrl	a, #ANSWER
	jz	2$
	mov	r7, #3
	mov	dptr, #DIRECTION
	movx	a, @dptr
	jb	acc.1, 2$
	inc	r7
2$:	ret

; ---------------------------------------------------------------------------------------------------------------
; Data-out has come: OUT_LENGTH bytes in the flash buffer, for the E1 or E3 that STATUS says is waiting.
	.org	DATA_OUT_CAME
data_out_came:
	mov	r0, #STATUS
	mov	a, @r0
	xrl	a, #DATA_OUT
	jz	out_waits
	ret
out_waits:
	mov	dptr, #BUFFER_OWNER
	movx	a, @dptr
	anl	a, #0xF9
	orl	a, #0x02
	movx	@dptr, a
	mov	dptr, #OPCODE
	movx	a, @dptr
	cjne	a, #0xE1, out_firmware
	mov	dptr, #BLOCK
	movx	a, @dptr
	jnz	1$
	; Block 0 comes first, so it erases the slot for all that follows.
	lcall	erase
	mov	a, r7
	jz	out_failed
1$:	mov	dptr, #BLOCK
	movx	a, @dptr
	clr	c
	rrc	a
	clr	a
	rrc	a			; block * 0x80
	mov	r6, #0
	mov	r5, #0
	lcall	out_program
	mov	a, r7
	jz	out_failed
	mov	r5, #0
	mov	r6, #0
	mov	r0, #HOST_LENGTH
	mov	r7, #0
	mov	r4, #0
	lcall	STORE_DWORD
	sjmp	out_done
out_failed:
	mov	r3, #0
	mov	r5, #3
	mov	r7, #3
	lcall	SET_SENSE
out_done:
	mov	r0, #STATUS
	mov	@r0, #ANSWER
	ljmp	FINISH

out_firmware:
	cjne	a, #0xE3, out_done
	; Part 1 begins at flash 0x000100, part 2 at 0x010000.
	mov	dptr, #PART
	movx	a, @dptr
	mov	r5, a
	xrl	a, #1
	mov	r6, a
	mov	r0, #OFFSET + 3
	mov	b, @r0
	dec	r0
	mov	a, @r0
	add	a, r6
	mov	r6, a
	dec	r0
	mov	a, @r0
	addc	a, r5
	mov	r5, a
	mov	a, b
	lcall	out_program
	mov	a, r7
	jz	out_failed
	mov	dptr, #OUT_LENGTH
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
	mov	r0, #OFFSET + 3
	add	a, @r0
	mov	@r0, a
	dec	r0
	mov	a, r6
	addc	a, @r0
	mov	@r0, a
	dec	r0
	clr	a
	addc	a, @r0
	mov	@r0, a
	; What the E3 still waits for.
	clr	c
	mov	a, LENGTH + 3
	subb	a, r5
	mov	r7, a
	mov	a, LENGTH + 2
	subb	a, r6
	mov	r6, a
	mov	a, LENGTH + 1
	subb	a, #0
	mov	r5, a
	mov	r4, #0
	mov	r0, #LENGTH
	lcall	STORE_DWORD
	mov	r0, #HOST_LENGTH
	lcall	STORE_DWORD
	mov	a, r5
	orl	a, r6
	orl	a, r7
	jz	out_done
	ljmp	finish_out

; Programs OUT_LENGTH bytes of the flash buffer at slot-relative flash address R5:R6:A. R7 = 0 is a failure.
out_program:
	mov	dptr, #FLASH_ADDR + 3
	movx	@dptr, a
	mov	dptr, #FLASH_ADDR + 2
	mov	a, r6
	movx	@dptr, a
	mov	dptr, #SLOT
	movx	a, @dptr
	add	a, acc
	add	a, r5
	mov	dptr, #FLASH_ADDR + 1
	movx	@dptr, a
	mov	dptr, #OUT_LENGTH
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
	mov	dptr, #PROGRAM_LEFT
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r5
	movx	@dptr, a
	clr	a
	mov	dptr, #PROGRAM_FROM
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	ljmp	program

; ---------------------------------------------------------------------------------------------------------------
; Runs the command whose opcode is at OPCODE; STATUS says how it goes on.
	.org	DISPATCH
dispatch:
	mov	dptr, #OPCODE
	movx	a, @dptr
	mov	r7, a
	xrl	a, #0x03		; REQUEST SENSE reports the sense that the others clear
	jz	1$
	clr	a
	mov	dptr, #SENSE_KEY
	movx	@dptr, a
	mov	dptr, #SENSE_ASC
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
1$:	lcall	transfer_direction
	jc	by_table
	lcall	QUEUE_BULK
	ljmp	dispatched
by_table:
	mov	dptr, #OPCODE
	movx	a, @dptr
	ljmp	cases
	.org	0x3912
cases:	lcall	CASE
	.dw	test_unit_ready
	.db	0x00
	.dw	do_request_sense
	.db	0x03
	.dw	do_inquiry
	.db	0x12
	.dw	do_config_read
	.db	0xE0
	.dw	do_config_write
	.db	0xE1
	.dw	do_flash_read
	.db	0xE2
	.dw	do_firmware_write
	.db	0xE3
	.dw	do_xdata_read
	.db	0xE4
	.dw	do_xdata_write
	.db	0xE5
	.dw	do_reset
	.db	0xE8
	.dw	0x0000
	.dw	unknown
test_unit_ready:
	mov	r7, #ANSWER
	ljmp	dispatched
do_request_sense:
	lcall	request_sense
	ljmp	dispatched
do_inquiry:
	lcall	inquiry
	ljmp	dispatched
do_config_read:
	lcall	config_read
	ljmp	dispatched
do_config_write:
	lcall	config_write
	ljmp	dispatched
do_flash_read:
	lcall	flash_read
	ljmp	dispatched
do_firmware_write:
	lcall	firmware_write
	ljmp	dispatched
do_xdata_read:
	lcall	xdata_read
	ljmp	dispatched
do_xdata_write:
	lcall	xdata_write
	ljmp	dispatched
do_reset:
	lcall	reset
	ljmp	dispatched
unknown:
	mov	r3, #0x00
	mov	r5, #0x20
	mov	r7, #0x05
	lcall	SET_SENSE
	mov	r7, #ANSWER
dispatched:
	mov	r0, #STATUS
	mov	@r0, 0x07
	ret

; R7 = the direction of READ(10), WRITE(10), READ(16) or WRITE(16) at OPCODE; carry set for any other command.
transfer_direction:
	mov	dptr, #OPCODE
	movx	a, @dptr
	mov	r7, #3
	cjne	a, #0x28, 1$
	clr	c
	ret
1$:	mov	r7, #1
	cjne	a, #0x2A, 2$
	clr	c
	ret
2$:	mov	r7, #2
	cjne	a, #0x88, 3$
	clr	c
	ret
3$:	mov	r7, #0
	cjne	a, #0x8A, 4$
	clr	c
	ret
4$:	setb	c
	ret

; A command over UAS: transfers are queued for the stream, everything else goes through the table.
	.org	DISPATCH_UAS
dispatch_uas:
	mov	dptr, #CDB_POINTER
	lcall	LOAD_POINTER
	mov	a, r1
	add	a, #CDB_AT
	mov	r1, a
	clr	a
	addc	a, r2
	mov	r2, a
	lcall	LOAD_GENERIC
	mov	dptr, #OPCODE
	movx	@dptr, a
	lcall	transfer_direction
	jc	1$
	lcall	QUEUE
	mov	r0, #STATUS
	mov	@r0, 0x07
	ljmp	FINISH
1$:	lcall	DISPATCH
	ljmp	FINISH

; Goes on after a command as STATUS says.
	.org	FINISH
finish:
	mov	r0, #STATUS
	mov	a, @r0
	lcall	CASE
	.dw	finish_in
	.db	DATA_IN
	.dw	SEND_IN
	.db	PACKETS_IN
	.dw	finish_out
	.db	DATA_OUT
	.dw	finish_answer
	.db	ANSWER
	.dw	finish_read
	.db	READ_QUEUED
	.dw	finish_write
	.db	WRITE_QUEUED
	.dw	0x0000
	.dw	finish_none
finish_in:
	mov	dptr, #IN_LENGTH
	mov	a, LENGTH + 2
	movx	@dptr, a
	inc	dptr
	mov	a, LENGTH + 3
	movx	@dptr, a
arm_in:	mov	a, #0x08
	mov	dptr, #USB_DONE
	movx	@dptr, a
	mov	a, #0x02
	inc	dptr
	movx	@dptr, a
	ret
finish_out:
	mov	dptr, #USB_DONE
	mov	a, #0x02
	movx	@dptr, a
	inc	dptr
	mov	a, #0x10
	movx	@dptr, a
finish_none:
	ret
finish_answer:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jnb	acc.0, 1$
	mov	dptr, #0xC8D4
	mov	a, #0xA0
	movx	@dptr, a
	ret
1$:	mov	dptr, #0x90A1
	mov	a, #1
	movx	@dptr, a
	ret
finish_read:
	mov	dptr, #0x06E6
	mov	a, #1
	movx	@dptr, a
	ret
finish_write:
	mov	dptr, #0x07EA
	mov	a, #1
	movx	@dptr, a
	ret

; Begins a reply of LENGTH bytes in packets: what the host does not expect is left out. Returns its status in R7.
	.org	BEGIN_REPLY
begin_reply:
	mov	dptr, #REPLY_KIND
	mov	a, r7
	movx	@dptr, a
	clr	a
	mov	dptr, #REPLY_AT
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	mov	dptr, #LINK_SPEED
	movx	a, @dptr
	anl	a, #2
	add	a, #2			; 0x400 bytes at SuperSpeed, 0x200 below
	mov	dptr, #PACKET
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	; R4 to R7 = HOST_LENGTH - LENGTH
	clr	c
	mov	a, HOST_LENGTH + 3
	subb	a, LENGTH + 3
	mov	r7, a
	mov	a, HOST_LENGTH + 2
	subb	a, LENGTH + 2
	mov	r6, a
	mov	a, HOST_LENGTH + 1
	subb	a, LENGTH + 1
	mov	r5, a
	mov	a, HOST_LENGTH
	subb	a, LENGTH
	mov	r4, a
	mov	r0, #RESIDUE
	jnc	1$
	mov	r0, #HOST_LENGTH
	lcall	LOAD_DWORD
	mov	r0, #LENGTH
1$:	lcall	STORE_DWORD
	mov	r7, #PACKETS_IN
	ret

; A packet of a reply is out: copies the next one down to the data buffer's start. R7 = 1 when it is on its way, 0 when
; the reply is over.
	.org	NEXT_PACKET
next_packet:
	lcall	full_packet
	clr	c
	mov	a, LENGTH + 3
	subb	a, r7
	mov	LENGTH + 3, a
	mov	a, LENGTH + 2
	subb	a, r6
	mov	LENGTH + 2, a
	jc	2$
	orl	a, LENGTH + 3
	jz	2$
	mov	dptr, #REPLY_AT + 1
	movx	a, @dptr
	add	a, r7
	movx	@dptr, a
	mov	r5, a
	mov	dptr, #REPLY_AT
	movx	a, @dptr
	addc	a, r6
	movx	@dptr, a
	add	a, #>DATA_BUFFER
	mov	r4, a			; R4:R5 the source, R2:R3 the destination
	mov	r2, #>DATA_BUFFER
	mov	r3, #<DATA_BUFFER
1$:	mov	dpl, r5
	mov	dph, r4
	movx	a, @dptr
	inc	dptr
	mov	r5, dpl
	mov	r4, dph
	mov	dpl, r3
	mov	dph, r2
	movx	@dptr, a
	inc	dptr
	mov	r3, dpl
	mov	r2, dph
	djnz	r7, 1$
	djnz	r6, 1$
	lcall	SEND_IN
	mov	r7, #1
	ret
2$:	mov	LENGTH + 2, #0
	mov	LENGTH + 3, #0
	mov	r7, #0
	ret

; R6:R7 = PACKET, a multiple of 256.
full_packet:
	mov	dptr, #PACKET
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r7, a
	ret

; Data-in is out: goes on with a reply in packets, or answers.
	.org	DATA_IN_OUT
data_in_out:
	mov	r0, #STATUS
	mov	a, @r0
	xrl	a, #PACKETS_IN
	jnz	data_in_over
	sjmp	packet_out
	.org	0x4D4E
packet_out:
	lcall	NEXT_PACKET
	mov	a, r7
	jz	data_in_over
	ret
data_in_over:
	mov	r0, #STATUS
	mov	@r0, #ANSWER
	ljmp	FINISH

; Arms the next packet: PACKET bytes, or LENGTH where that is less.
	.org	SEND_IN
send_in:
	lcall	full_packet
	clr	c
	mov	a, LENGTH + 3
	subb	a, r7
	mov	a, LENGTH + 2
	subb	a, r6
	jnc	1$
	mov	r6, LENGTH + 2
	mov	r7, LENGTH + 3
1$:	mov	dptr, #IN_LENGTH
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	ljmp	arm_in

; Sense key R7, additional code R5, qualifier R3.
	.org	SET_SENSE
set_sense:
	mov	a, r7
	mov	dptr, #SENSE_KEY
	movx	@dptr, a
	mov	a, r5
	mov	dptr, #SENSE_ASC
	movx	@dptr, a
	mov	a, r3
	inc	dptr
	movx	@dptr, a
	mov	a, #1
	mov	dptr, #SENSE_SET
	movx	@dptr, a
	ret

; ===============================================================================================================
; Bank 0: the flash controller and what drives it.

; Lets the link leave its idle states before registers behind it are read.
	.org	WAKE_0
wake_0:
	cjne	r7, #1, 1$
	mov	dptr, #IDLE_B
	movx	a, @dptr
	clr	acc.1
	movx	@dptr, a
	mov	dptr, #IDLE_A
	movx	a, @dptr
	clr	acc.1
	movx	@dptr, a
1$:	ret

; Programs PROGRAM_LEFT bytes from PROGRAM_FROM in the flash buffer at FLASH_ADDR, in pages. R7 = 0 is a failure.
	.org	PROGRAM_0
program_0:
	mov	dptr, #PROGRAM_LEFT
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
	orl	a, r6
	jnz	1$
	mov	r7, #1
	ret
	; n = the bytes left in this page, at most those left to write
1$:	mov	dptr, #FLASH_ADDR + 3
	movx	a, @dptr
	cpl	a
	add	a, #1
	mov	r4, a			; low byte of 256 - (address & 0xFF)
	mov	r3, #0
	jnz	2$
	mov	r3, #1
2$:	clr	c
	mov	a, r5
	subb	a, r4
	mov	a, r6
	subb	a, r3
	jnc	3$
	mov	a, r5
	mov	r4, a
	mov	a, r6
	mov	r3, a
3$:	mov	TEMP + 0, r3
	mov	TEMP + 1, r4
	mov	r7, #0x06		; write enable
	lcall	bare_command
	mov	dptr, #FLASH_LEN
	mov	a, TEMP + 0
	movx	@dptr, a
	inc	dptr
	mov	a, TEMP + 1
	movx	@dptr, a
	mov	dptr, #PROGRAM_FROM
	movx	a, @dptr
	mov	r2, a
	inc	dptr
	movx	a, @dptr
	mov	r3, a
	mov	r7, #0x02		; page program
	mov	r5, #3
	mov	r4, #1
	lcall	FLASH_COMMAND_0
	lcall	wait_written
	mov	a, r7
	jz	4$
	; address += n, offset += n, left -= n
	mov	dptr, #FLASH_ADDR + 3
	movx	a, @dptr
	add	a, TEMP + 1
	movx	@dptr, a
	mov	dptr, #FLASH_ADDR + 2
	movx	a, @dptr
	addc	a, TEMP + 0
	movx	@dptr, a
	mov	dptr, #FLASH_ADDR + 1
	movx	a, @dptr
	addc	a, #0
	movx	@dptr, a
	mov	dptr, #PROGRAM_FROM + 1
	movx	a, @dptr
	add	a, TEMP + 1
	movx	@dptr, a
	mov	dptr, #PROGRAM_FROM
	movx	a, @dptr
	addc	a, TEMP + 0
	movx	@dptr, a
	mov	dptr, #PROGRAM_LEFT + 1
	movx	a, @dptr
	clr	c
	subb	a, TEMP + 1
	movx	@dptr, a
	mov	dptr, #PROGRAM_LEFT
	movx	a, @dptr
	subb	a, TEMP + 0
	movx	@dptr, a
	ljmp	PROGRAM_0
4$:	ret

; A command without address and data: R7.
bare_command:
	clr	a
	mov	dptr, #FLASH_LEN
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	mov	r5, a
	mov	r4, a
	mov	r3, a
	mov	r2, a
	ljmp	FLASH_COMMAND_0

; Polls the flash's status until its write is done. R7 = 0 when it never is.
wait_written:
	mov	TEMP + 2, #0
	mov	TEMP + 3, #0
1$:	mov	dptr, #FLASH_LEN
	clr	a
	movx	@dptr, a
	inc	dptr
	inc	a
	movx	@dptr, a
	clr	a
	mov	r5, a
	mov	r4, a
	mov	r3, a
	mov	r2, a
	mov	r7, #0x05		; read status
	lcall	FLASH_COMMAND_0
	mov	dptr, #FLASH_BUFFER
	movx	a, @dptr
	jnb	acc.0, 2$
	djnz	TEMP + 3, 1$
	djnz	TEMP + 2, 1$
	mov	r7, #0
	ret
2$:	mov	r7, #1
	ret

; Runs flash command R7 with R5 address bytes of FLASH_ADDR and FLASH_LEN bytes at offset R2:R3 of the flash buffer,
; to the flash if R4 is 1.
	.org	FLASH_COMMAND_0
flash_command_0:
	mov	dptr, #FC_DIRECTION
	movx	a, @dptr
	anl	a, #0xFE
	orl	a, r4
	movx	@dptr, a
	mov	dptr, #FC_OFFSET
	mov	a, r2
	movx	@dptr, a
	inc	dptr
	mov	a, r3
	movx	@dptr, a
	mov	dptr, #FC_COMMAND
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #FC_ADDR_BYTES
	movx	a, @dptr
	anl	a, #0xFC
	orl	a, r5
	movx	@dptr, a
	mov	dptr, #FLASH_ADDR + 1
	movx	a, @dptr
	mov	dptr, #FC_ADDR_HIGH
	movx	@dptr, a
	mov	dptr, #FLASH_ADDR + 2
	movx	a, @dptr
	mov	dptr, #FC_ADDR_MID
	movx	@dptr, a
	mov	dptr, #FLASH_ADDR + 3
	movx	a, @dptr
	mov	dptr, #FC_ADDR_LOW
	movx	@dptr, a
	mov	dptr, #FLASH_LEN
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	dptr, #FC_LEN + 1
	movx	@dptr, a
	mov	dptr, #FC_LEN
	mov	a, r6
	movx	@dptr, a
	mov	dptr, #FC_START
	mov	a, #1
	movx	@dptr, a
1$:	movx	a, @dptr
	jb	acc.0, 1$
	ret

; Erases the slot's two blocks of 64 KiB. R7 = 0 is a failure.
	.org	ERASE_0
erase_0:
	mov	TEMP + 0, #0
1$:	mov	r7, #0x06
	lcall	bare_command
	mov	dptr, #SLOT
	movx	a, @dptr
	add	a, acc
	add	a, TEMP + 0
	mov	dptr, #FLASH_ADDR + 1
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	mov	r5, #3
	mov	r4, a
	mov	r3, a
	mov	r2, a
	mov	r7, #0xD8		; block erase
	lcall	FLASH_COMMAND_0
	lcall	wait_written
	mov	a, r7
	jz	2$
	inc	TEMP + 0
	mov	a, TEMP + 0
	cjne	a, #2, 1$
2$:	ret
