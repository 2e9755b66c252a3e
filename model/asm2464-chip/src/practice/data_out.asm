; Data from the host: configuration blocks, firmware, and data that no command takes.

; --- A packet arrived: OUT_LENGTH bytes in the flash buffer, for the command in STATUS.
	.org	DATA_OUT_CAME
data_out_came:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jb	acc.0, 1$
	lcall	count_out
1$:	mov	r0, #STATUS
	cjne	@r0, #DISCARD, 2$
	sjmp	surplus_came
2$:	cjne	@r0, #DATA_OUT, 3$
	sjmp	out_waits
3$:	ret

; OUT_LEFT -= OUT_LENGTH, but not below 0.
count_out:
	mov	dptr, #OUT_LENGTH
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
	clr	c
	mov	a, OUT_LEFT + 3
	subb	a, r5
	mov	OUT_LEFT + 3, a
	mov	a, OUT_LEFT + 2
	subb	a, r6
	mov	OUT_LEFT + 2, a
	mov	a, OUT_LEFT + 1
	subb	a, #0
	mov	OUT_LEFT + 1, a
	mov	a, OUT_LEFT
	subb	a, #0
	mov	OUT_LEFT, a
	jnc	1$
	mov	r0, #OUT_LEFT
	lcall	clear_dword
1$:	ret

; The command has all its data. Drops what the host still sends.
surplus_came:
out_done:
	mov	r0, #OUT_LEFT
	lcall	is_zero
	jz	1$
	ljmp	discard_out
1$:	mov	r0, #SURPLUS
	lcall	LOAD_DWORD
	mov	r0, #RESIDUE
	lcall	STORE_DWORD
	mov	r0, #STATUS
	mov	@r0, #ANSWER
	ljmp	FINISH

out_waits:
	mov	dptr, #BUFFER_OWNER
	movx	a, @dptr
	anl	a, #0xF9
	orl	a, #0x02
	movx	@dptr, a
	mov	dptr, #OPCODE
	movx	a, @dptr
	cjne	a, #0xE1, out_firmware
; E1: one packet is one block.
	mov	dptr, #BLOCK
	movx	a, @dptr
	jnz	1$
	; Block 0 comes first, so it erases the slot for everything after it.
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
	mov	r0, #HOST_LENGTH
	lcall	clear_dword
	sjmp	out_done
out_failed:
	mov	r3, #0
	mov	r5, #3
	mov	r7, #3
	lcall	SET_SENSE
	sjmp	out_done

; E3: packet after packet.
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
	; The number of bytes that the E3 still waits for.
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
	jc	1$			; a packet that is too long ends the data
	mov	r4, #0
	mov	r0, #LENGTH
	lcall	STORE_DWORD
	mov	r0, #HOST_LENGTH
	lcall	STORE_DWORD
	mov	a, r5
	orl	a, r6
	orl	a, r7
	jnz	arm_out
1$:	ljmp	out_done
; Takes the next packet from the host.
arm_out:
	mov	a, #0x02		; acknowledges the last packet's event
	mov	dptr, #BULK_EVENTS
	movx	@dptr, a
	mov	a, #0x10
	inc	dptr			; BULK_ARM
	movx	@dptr, a
	ret

; Programs OUT_LENGTH bytes of the flash buffer at slot-relative flash address R5:R6:A. R7 = 0: failed.
out_program:
	mov	dptr, #FLASH_ADDR + 3
	movx	@dptr, a
	mov	dptr, #FLASH_ADDR + 2
	mov	a, r6
	movx	@dptr, a
	mov	dptr, #SLOT_BIT
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
