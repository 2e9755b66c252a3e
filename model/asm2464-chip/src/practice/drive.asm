; READ and WRITE with an NVMe drive, part by part through the first slots of the SRAM. The I/O engine splits the
; command, builds each part's NVMe command and starts its DMA. One part of one command is in progress at a time: over
; UAS, BUSY keeps the others waiting.

; --- Starts the drive unless it is started. R7 = 0: it is ready; NO_DRIVE: there is none; ANSWER: it is not ready, and
; the sense data says why.
	.org	0x1900
drive_medium:
	lcall	drive_start
	mov	a, r7
	jz	1$
	cjne	a, #NO_DRIVE, 2$
1$:	ret
2$:	mov	r3, #0x01		; becoming ready
	mov	r5, #0x04
	mov	r7, #0x02
	cjne	a, #DRIVE_LOST, set_drive_sense
drive_is_lost:
	mov	r3, #0x02		; timeout on logical unit
	mov	r5, #0x3E
	mov	r7, #0x04
set_drive_sense:
	lcall	SET_SENSE
	mov	r7, #ANSWER
	ret

	.org	DRIVE_IS_GONE
	ljmp	drive_lost

; --- Makes the drive execute the command in a queue's next entry. R7 = 1: the admin queue; 3: the I/O queue. Carry: it
; failed. DRIVE_STARTED then says whether the drive answered at all.
	.org	NVME_RUN
nvme_run:
	mov	dptr, #ADMIN_EVENTS
	mov	r6, #0x80
	mov	r5, #>ADMIN_ENTRIES
	cjne	r7, #1, 1$
	sjmp	2$
1$:	inc	dptr			; NVME_EVENTS
	mov	r6, #0x08
	mov	r5, #>IO_ENTRIES
2$:	mov	r3, dpl
	mov	a, r6
	movx	@dptr, a		; discards an event of an earlier command
	mov	a, #<NEXT_ENTRY
	add	a, r7
	mov	dpl, a
	mov	dph, #>NEXT_ENTRY
	movx	a, @dptr
	mov	r4, a
	inc	a
	anl	a, #QUEUE_LEN - 1
	movx	@dptr, a
	lcall	ring
	mov	r1, #0
	mov	r2, #0
3$:	mov	dph, #>ADMIN_EVENTS
	mov	dpl, r3
	movx	a, @dptr
	anl	a, r6
	jnz	entry_came
	mov	dptr, #PCIE_LINK
	movx	a, @dptr
	jz	drive_lost
	djnz	r1, 3$
	djnz	r2, 3$
; A READ's DMA may wait for an entry that never comes. The next READ must not meet it, so the drive starts again only
; after a reset of the transport.
drive_lost:
	mov	dptr, #DRIVE_STARTED
	clr	a
	movx	@dptr, a
	mov	dptr, #DRIVE_STATE
	mov	a, #DRIVE_LOST
	movx	@dptr, a
	setb	c
	ret
entry_came:
	movx	@dptr, a
	mov	a, r4			; its status without the phase bit
	swap	a
	add	a, #14
	mov	dpl, a
	mov	dph, r5
	movx	a, @dptr
	anl	a, #0xFE
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	orl	a, r6
	mov	r6, a
	mov	a, r7
	add	a, #0x10		; the completion queue's doorbell
	mov	r7, a
	mov	a, r4
	inc	a
	anl	a, #QUEUE_LEN - 1
	lcall	ring
	mov	a, r6
	add	a, #0xFF		; carry unless it is 0
	ret

; Rings doorbell R7 with value A.
ring:	mov	dptr, #DOORBELL + 1
	movx	@dptr, a
	clr	a
	mov	dptr, #DOORBELL
	movx	@dptr, a
	mov	dptr, #TLP_FIRE
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #TLP_STATUS
	mov	a, #0x04
	movx	@dptr, a
	ret

; --- A READ or WRITE of the drive, by DIRECTION: checks it, and sets LENGTH. Returns the status in R7.
drive_queue:
	mov	dptr, #DIRECTION
	movx	a, @dptr
	mov	b, a
	mov	dptr, #CDB_POINTER
	lcall	LOAD_POINTER
	mov	a, r1
	add	a, #CDB_AT + 1
	mov	dpl, a
	clr	a
	addc	a, r2
	mov	dph, a
	movx	a, @dptr
	anl	a, #0xE0		; protection information, which the drive does not have
	jz	1$
	ljmp	invalid_transfer
1$:	inc	dptr
	mov	r1, dpl
	mov	r2, dph
	; IO_END = the logical block address, of 4 or 8 bytes
	mov	r6, #4
	jb	b.0, 2$
	mov	r6, #8
2$:	mov	dptr, #IO_END
	mov	r5, #8
	clr	a
3$:	movx	@dptr, a
	inc	dptr
	djnz	r5, 3$
	clr	c
	clr	a			; IO_END ends at the end of its page
	subb	a, r6
	mov	r3, a
4$:	mov	dpl, r1
	mov	dph, r2
	movx	a, @dptr
	inc	dptr
	mov	r1, dpl
	mov	r2, dph
	mov	dph, #>IO_END
	mov	dpl, r3
	movx	@dptr, a
	inc	r3
	djnz	r6, 4$
	; R4 to R7 = blocks
	mov	dpl, r1
	mov	dph, r2
	mov	r4, #0
	mov	r5, #0
	jb	b.0, 5$
	movx	a, @dptr
	mov	r4, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
5$:	inc	dptr			; skips the group number of a ten-byte CDB
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r7, a
	; IO_END += blocks
	mov	dptr, #IO_END + 7
	movx	a, @dptr
	add	a, r7
	movx	@dptr, a
	dec	dpl
	movx	a, @dptr
	addc	a, r6
	movx	@dptr, a
	dec	dpl
	movx	a, @dptr
	addc	a, r5
	movx	@dptr, a
	dec	dpl
	movx	a, @dptr
	addc	a, r4
	movx	@dptr, a
	mov	r3, #4
6$:	dec	dpl
	movx	a, @dptr
	addc	a, #0
	movx	@dptr, a
	djnz	r3, 6$
	jc	out_of_range
	; DRIVE_BLOCKS - IO_END. Both end at the end of their page.
	mov	dpl, #0xFF
	mov	r3, #8
7$:	mov	dph, #>IO_END
	movx	a, @dptr
	mov	r2, a
	mov	dph, #>DRIVE_BLOCKS
	movx	a, @dptr
	subb	a, r2
	dec	dpl
	djnz	r3, 7$
	jc	out_of_range
	mov	a, r4
	orl	a, r5
	jnz	invalid_transfer
	mov	a, r6
	orl	a, r7
	jz	nothing_to_move
	mov	a, r7			; more than MOST_BLOCKS?
	add	a, #0xFF
	mov	a, r6
	addc	a, #-(>MOST_BLOCKS + 1)
	jc	invalid_transfer
	mov	LENGTH + 0, #0
	mov	LENGTH + 3, #0
	mov	a, r7
	add	a, acc
	mov	LENGTH + 2, a
	mov	a, r6
	rlc	a
	mov	LENGTH + 1, a
	mov	a, r7
	mov	dptr, #LAST_ODD
	anl	a, #0x01
	movx	@dptr, a
	clr	a
	mov	dptr, #DRIVE_FAILED
	movx	@dptr, a
	mov	dptr, #DRIVE_PLACE
	movx	@dptr, a
	mov	r7, #DRIVE_IN
	jb	b.1, 8$
	mov	r7, #DRIVE_OUT
8$:	ret
nothing_to_move:
	mov	r7, #ANSWER
	ret
out_of_range:
	mov	r5, #0x21
	sjmp	refuse_transfer
invalid_transfer:
	mov	r5, #0x24
refuse_transfer:
	mov	r3, #0x00
	mov	r7, #0x05
	lcall	SET_SENSE
	mov	r7, #ANSWER
	ret

; --- The host is ready for a READ's data.
drive_in:
	mov	r7, #1
	lcall	ANNOUNCE
read_part:
	mov	r6, #0x03		; DMA and command
	lcall	start_part
	mov	r7, #3
	lcall	NVME_RUN
	jnc	1$
	mov	dptr, #DRIVE_STARTED
	movx	a, @dptr
	jz	2$
	; The completion releases the data even after an error. The data is then worthless, and the status says so.
	mov	dptr, #DRIVE_FAILED
	movx	@dptr, a
1$:	ret
2$:	lcall	drive_is_lost
	sjmp	read_cut_short

; --- A part's data has gone to the host.
part_gone:
	lcall	part_over
	mov	r6, a
	mov	dptr, #DRIVE_FAILED
	movx	a, @dptr
	jnz	1$
	mov	a, r6
	jnz	read_part
	ljmp	reply_gone
1$:	mov	r3, #0x00		; unrecovered read error
	mov	r5, #0x11
	mov	r7, #0x03
	lcall	SET_SENSE
	mov	a, r6
	jz	read_failed
; Over Bulk-Only a halt ends the host's wait for the rest of the data.
read_cut_short:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jb	acc.0, read_failed
	mov	dptr, #CASE_OF_THIRTEEN
	mov	a, #3
	movx	@dptr, a
read_failed:
	mov	r0, #HOST_LENGTH
	lcall	LOAD_DWORD
	mov	r0, #RESIDUE
	lcall	STORE_DWORD
	ljmp	reply_gone

; --- The host is ready to send a WRITE's data.
drive_out:
	mov	r7, #0
	lcall	ANNOUNCE
write_part:
	mov	r6, #0x01		; only the DMA
; Starts what R6 selects for the part at DRIVE_PLACE.
start_part:
	mov	dptr, #UNIT_OF
	mov	a, SLOT
	movx	@dptr, a
	mov	dptr, #IO_FIRST_SLOT
	clr	a
	movx	@dptr, a
	mov	dptr, #DRIVE_PLACE
	movx	a, @dptr
	mov	dptr, #IO_SLOT
	movx	@dptr, a
	mov	dptr, #NEXT_ENTRY + 3
	movx	a, @dptr
	mov	dptr, #IO_START + 1
	movx	@dptr, a
	mov	dptr, #IO_START
	mov	a, r6
	movx	@dptr, a
	ret

; --- A part's data has arrived from the host.
part_came:
	mov	r6, #0x02		; then the command
	lcall	start_part
	mov	r7, #3
	lcall	NVME_RUN
	jc	1$
	lcall	part_over
	jnz	write_part
	sjmp	write_ends
1$:	lcall	write_fault
	lcall	part_over
; Drops the data that the host still sends, because the CSW comes after it. The packet in which the last part ended is
; gone.
write_ends:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jb	acc.0, 3$
	clr	c
	mov	a, SURPLUS + 2
	add	a, LENGTH + 2
	mov	SURPLUS + 2, a
	mov	a, SURPLUS + 1
	addc	a, LENGTH + 1
	mov	SURPLUS + 1, a
	clr	a
	addc	a, SURPLUS
	mov	SURPLUS, a
	mov	r0, #SURPLUS
	lcall	LOAD_DWORD
	mov	r0, #OUT_LEFT
	lcall	STORE_DWORD
	mov	a, LENGTH + 1
	orl	a, LENGTH + 2
	jnz	3$
	mov	dptr, #LAST_ODD
	movx	a, @dptr
	jz	3$
	mov	dptr, #USB_SPEED
	movx	a, @dptr
	jnb	acc.1, 3$
	mov	dptr, #OUT_LENGTH	; the other half of a packet of 0x400 bytes
	mov	a, #0x02
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	lcall	count_out
3$:	ljmp	out_done

; Sets the sense data of a failed WRITE or flush.
write_fault:
	mov	dptr, #DRIVE_STARTED
	movx	a, @dptr
	jnz	1$
	ljmp	drive_is_lost
1$:	mov	r3, #0x00
	mov	r5, #0x03
	mov	r7, #0x03
	lcall	SET_SENSE
	mov	r7, #ANSWER
	ret

; Advances LENGTH and DRIVE_PLACE past the part. A = 0: it was the last.
part_over:
	mov	dptr, #PART_SLOTS
	movx	a, @dptr
	mov	r5, a
	mov	dptr, #DRIVE_PLACE
	movx	a, @dptr
	add	a, r5
	movx	@dptr, a
	mov	a, r5
	mov	b, #0x40		; 16 KiB, in units of 256 bytes
	mul	ab
	mov	r5, a
	clr	c
	mov	a, LENGTH + 2
	subb	a, r5
	mov	LENGTH + 2, a
	mov	a, LENGTH + 1
	subb	a, b
	mov	LENGTH + 1, a
	jnc	1$
	mov	LENGTH + 1, #0
	mov	LENGTH + 2, #0
1$:	mov	a, LENGTH + 1
	orl	a, LENGTH + 2
	ret
