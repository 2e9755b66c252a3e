; Routines that bank 1's handlers share.

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

; R7 = CDB byte 1. Sets carry unless it is 0x50 or 0x51.
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

; The same for E2 and E3, where bit 7 selects the part. Sets SLOT and PART.
mode_of_part:
	mov	r5, #1
	lcall	cdb_byte
	mov	r7, a
	anl	a, #1
	mov	dptr, #SLOT_BIT
	movx	@dptr, a
	mov	a, r7
	rl	a
	anl	a, #1
	mov	dptr, #PART
	movx	@dptr, a
	mov	a, r7
	anl	a, #0x7E
	sjmp	mode_checked

; The same for E0 and E1, where CDB byte 2 is the block. Sets SLOT and BLOCK.
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
	mov	dptr, #SLOT_BIT
	movx	@dptr, a
1$:	ret

; Over UAS, HOST_LENGTH = R4 to R7: UAS carries no host length.
host_length:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jnb	acc.0, 1$
	mov	r0, #HOST_LENGTH
	lcall	STORE_DWORD
1$:	ret

; Lets the flash controller fill the flash buffer, instead of the host.
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
	ljmp	FLASH_COMMAND

invalid_field:
	mov	r3, #0x00
	mov	r5, #0x24
illegal_request:
	mov	r7, #0x05
	lcall	SET_SENSE
	mov	r7, #ANSWER
	ret
