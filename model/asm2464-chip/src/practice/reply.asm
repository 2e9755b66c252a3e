; Data to the host. After each arming the controller sends one packet from the data buffer, and reports when it is sent.

; --- Begins a reply of LENGTH bytes in packets. R7 is its kind (see REPLY_KIND). Cuts LENGTH to what the host expects,
; and sets the residue. For kinds 1 and 2 copies the first packet. Returns R7 = DATA_IN_PACKETS.
	.org	BEGIN_REPLY
begin_reply:
	mov	dptr, #REPLY_OFFSET
	clr	a
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a		; REPLY_PAGE
	mov	a, r7
	mov	dptr, #REPLY_KIND
	movx	@dptr, a
	; A full packet's size
	mov	dptr, #USB_SPEED
	movx	a, @dptr
	mov	r6, #0x04
	mov	r7, #0
	jb	acc.1, 1$
	mov	r6, #0x02
	jb	acc.0, 1$
	mov	r6, #0
	mov	r7, #0x40
1$:	mov	dptr, #REPLY_PACKET
	mov	a, r6
	movx	@dptr, a
	mov	a, r7
	inc	dptr
	movx	@dptr, a
	mov	r0, #HOST_LENGTH
	mov	r1, #LENGTH
	lcall	subtract
	jnc	2$
	mov	r0, #HOST_LENGTH
	lcall	LOAD_DWORD
	mov	r0, #LENGTH
	sjmp	3$
2$:	mov	r0, #RESIDUE
3$:	lcall	STORE_DWORD
	mov	dptr, #REPLY_KIND
	movx	a, @dptr
	jz	4$
	ljmp	first_copy
4$:	mov	r7, #DATA_IN_PACKETS
	ret

; --- A packet of the reply was sent. R7 = 1: the next one is armed; 0: it was the last.
	.org	NEXT_PACKET
next_packet:
	mov	dptr, #SRAM_WINDOW_PAGE
	movx	a, @dptr
	anl	a, #0xF8
	movx	@dptr, a
	; LENGTH -= packet, but not below 0
	lcall	load_packet
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
	jnc	1$
	mov	r0, #LENGTH
	lcall	clear_dword
1$:	mov	r0, #LENGTH
	lcall	is_zero
	jnz	2$
	mov	r7, #0
	ret
	; offset += packet; at 0x1000 selects the window's next page
2$:	mov	dptr, #REPLY_OFFSET + 1
	movx	a, @dptr
	add	a, r7
	movx	@dptr, a
	mov	dptr, #REPLY_OFFSET
	movx	a, @dptr
	addc	a, r6
	movx	@dptr, a
	jnb	acc.4, 3$
	clr	a
	movx	@dptr, a
	mov	dptr, #REPLY_PAGE
	movx	a, @dptr
	inc	a
	movx	@dptr, a
3$:	lcall	find_source
	mov	dptr, #REPLY_PAGE
	movx	a, @dptr
	mov	r5, a
	mov	dptr, #SRAM_WINDOW_PAGE
	movx	a, @dptr
	orl	a, r5
	movx	@dptr, a
	lcall	load_packet
	ljmp	copy_packet

	; A patch with a faster loop replaces the code from here on. R6:R7 is the number of bytes to copy to the data buffer
	; from the address in SOURCE.
	.org	0x40AF
copy_packet:
	mov	dptr, #SOURCE
	movx	a, @dptr
	mov	r2, a
	inc	dptr
	movx	a, @dptr
	mov	r1, a
	lcall	copy_bytes
	sjmp	packet_copied
	.org	0x40D0
packet_copied:
	lcall	SEND_IN
	mov	r7, #1
	ret

	.org	0x1480
; R6:R7 = the number of bytes of a full packet.
load_packet:
	mov	dptr, #REPLY_PACKET
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r7, a
	ret

; SOURCE = the beginning of the reply's bytes + REPLY_OFFSET.
find_source:
	mov	dptr, #REPLY_KIND
	movx	a, @dptr
	mov	r5, #>DATA_BUFFER
	jz	1$
	mov	r5, #>SRAM_WINDOW
	dec	a
	jz	1$
	mov	r5, #0xE8
1$:	mov	dptr, #REPLY_OFFSET
	movx	a, @dptr
	add	a, r5
	mov	r5, a
	inc	dptr
	movx	a, @dptr
	mov	r4, a
	mov	dptr, #SOURCE
	mov	a, r5
	movx	@dptr, a
	inc	dptr
	mov	a, r4
	movx	@dptr, a
	ret

; Copies R6:R7 bytes from R2:R1 to the data buffer.
copy_bytes:
	mov	r4, #>DATA_BUFFER
	mov	r3, #<DATA_BUFFER
	mov	a, r7
	jz	1$
	inc	r6			; for two nested DJNZ
1$:	mov	a, r6
	jz	3$
2$:	mov	dpl, r1
	mov	dph, r2
	movx	a, @dptr
	inc	dptr
	mov	r1, dpl
	mov	r2, dph
	mov	dpl, r3
	mov	dph, r4
	movx	@dptr, a
	inc	dptr
	mov	r3, dpl
	mov	r4, dph
	djnz	r7, 2$
	djnz	r6, 2$
3$:	ret

first_copy:
	mov	dptr, #SRAM_WINDOW_PAGE
	movx	a, @dptr
	anl	a, #0xF8
	movx	@dptr, a
	lcall	find_source
	lcall	load_packet
	mov	a, r5
	mov	r2, a
	mov	a, r4
	mov	r1, a
	lcall	copy_bytes
	mov	r7, #DATA_IN_PACKETS
	ret

; --- The packet on 0x81 was sent.
	.org	PACKET_GONE
packet_gone:
	mov	r0, #STATUS
	cjne	@r0, #DATA_IN, 1$
	sjmp	reply_gone
1$:	cjne	@r0, #DATA_IN_PACKETS, 2$
	lcall	NEXT_PACKET		; at 0x4D4E, where a patch may call another routine
	mov	a, r7
	jz	reply_gone
2$:	ret
reply_gone:
	lcall	halt_if_short
	mov	r0, #STATUS
	mov	@r0, #ANSWER
	ljmp	finish_answer

; --- Waits until the packet on 0x81 is sent. Carry: the transport was reset meanwhile, so nobody waits for an answer.
; Serves the bus and the control endpoint, so that a host that doesn't read its data can still reset the unit. Changes
; all registers.
	.org	WAIT_PACKET
wait_packet:
	mov	dptr, #BULK_EVENTS
	movx	a, @dptr
	jb	acc.3, 1$
	lcall	bus_and_control
	mov	dptr, #ABORTED
	movx	a, @dptr
	jz	wait_packet
	setb	c
	ret
1$:	mov	a, #0x08
	movx	@dptr, a
	clr	c
	ret

; --- Arms the lesser of LENGTH and a full packet.
	.org	SEND_IN
send_in:
	lcall	load_packet
	clr	c
	mov	a, LENGTH + 3
	subb	a, r7
	mov	a, LENGTH + 2
	subb	a, r6
	mov	a, LENGTH + 1
	subb	a, #0
	jc	1$
	ljmp	arm_these
1$:	mov	r6, LENGTH + 2
	mov	r7, LENGTH + 3
	ljmp	arm_these

	.org	0x1500
; Arms R6:R7 bytes of the data buffer.
arm_these:
	mov	dptr, #IN_LENGTH
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
; Arms the IN_LENGTH bytes that are in the data buffer.
arm_in:
	mov	a, #0x08		; acknowledges the last packet's event
	mov	dptr, #BULK_EVENTS
	movx	@dptr, a
	mov	a, #0x02
	inc	dptr			; BULK_ARM
	movx	@dptr, a
	ret

; --- UAS at high speed has no streams: tells the host which command's data comes next. R7 = 1: data to the host; 0:
; data from it.
	.org	ANNOUNCE
announce:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jnb	acc.0, 2$
	mov	dptr, #USB_SPEED
	movx	a, @dptr
	jnb	acc.0, 2$
	mov	a, #0x08		; READ READY
	cjne	r7, #0, 1$
	mov	a, #0x10		; WRITE READY
1$:	mov	dptr, #UAS_READY
	movx	@dptr, a
2$:	ret
