; Bank 0: the SPI flash. A command is set up in the controller's registers and started. Its data is in the flash buffer.
; The flash's own commands are those of every SPI NOR part: 03 read, 06 write enable, 02 page program, D8 block erase,
; 05 status.

; Makes the link leave its idle states, before registers behind it are read.
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

; Programs PROGRAM_LEFT bytes from PROGRAM_FROM in the flash buffer at FLASH_ADDR, in pages. R7 = 0: failed.
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
	; n = the bytes left in this page, but at most those left to write
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

; Runs command R7, which has no address and no data.
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

STATUS_AT	= 0x0FFF		; offset in the flash buffer
; Polls the flash's status until its write is done. R7 = 0: it never was.
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
	mov	r2, #>STATUS_AT		; after the data that the host has sent
	mov	r3, #<STATUS_AT
	mov	r7, #0x05		; read status
	lcall	FLASH_COMMAND_0
	mov	dptr, #FLASH_BUFFER + STATUS_AT
	movx	a, @dptr
	jnb	acc.0, 2$
	djnz	TEMP + 3, 1$
	djnz	TEMP + 2, 1$
	mov	r7, #0
	ret
2$:	mov	r7, #1
	ret

; Runs flash command R7 with R5 address bytes of FLASH_ADDR, and FLASH_LEN bytes at offset R2:R3 of the flash buffer. R4
; = 1: the data goes to the flash.
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

; Erases the slot's two blocks of 64 KiB. R7 = 0: failed.
	.org	ERASE_0
erase_0:
	mov	TEMP + 0, #0
1$:	mov	r7, #0x06
	lcall	bare_command
	mov	dptr, #SLOT_BIT
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
