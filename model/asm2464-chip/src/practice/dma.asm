; READ and WRITE: the SRAM DMA moves a command's data between its stream and the SRAM. Writes the registers in 240417's
; order. The logical block address has no effect: a transfer takes free SRAM slots.
;
; With an NVMe drive behind the bridge, drive.asm executes the command. Without one, a GPU runtime sets the variables
; that report a drive, because it wants the data in the SRAM, where a GPU can reach it.

; --- Clears carry if the variables that a GPU runtime writes report an NVMe device.
	.org	NVME_READY
nvme_ready:
	mov	dptr, #NVME_ERROR
	movx	a, @dptr
	jnz	1$
	mov	dptr, #SRAM_SECTORS
	movx	a, @dptr
	jz	1$
	mov	dptr, #NVME_PRESENT
	movx	a, @dptr
	cjne	a, #2, 1$
	mov	dptr, #NVME_STATE
	movx	a, @dptr
	cjne	a, #4, 1$
	clr	c
	ret
1$:	setb	c
	ret

; --- Queues a transfer with the SRAM. R7 bit 1 is set for a read. Returns the status in R7.
	.org	QUEUE
queue:
	mov	dptr, #DIRECTION
	mov	a, r7
	movx	@dptr, a
	lcall	drive_medium
	cjne	r7, #0, 6$
	ljmp	drive_queue
6$:	cjne	r7, #NO_DRIVE, 7$
	lcall	NVME_READY
	jnc	1$
	mov	r3, #0x00		; medium not present
	mov	r5, #0x3A
	mov	r7, #0x02
	lcall	SET_SENSE
	mov	r7, #ANSWER
7$:	ret
	; R6:R5 = sectors: the low 16 bits of the length, in bytes 7 and 8 of a ten-byte CDB, otherwise in bytes 12 and 13.
1$:	mov	dptr, #CDB_POINTER
	lcall	LOAD_POINTER
	mov	dptr, #OPCODE
	movx	a, @dptr
	mov	r5, #CDB_AT + 7
	jnb	acc.7, 2$
	mov	r5, #CDB_AT + 12
2$:	mov	a, r1
	add	a, r5
	mov	r1, a
	clr	a
	addc	a, r2
	mov	r2, a
	lcall	LOAD_GENERIC
	mov	r6, a
	inc	r1
	cjne	r1, #0, 3$
	inc	r2
3$:	lcall	LOAD_GENERIC
	mov	r5, a
	orl	a, r6
	jnz	4$
	mov	r7, #ANSWER		; nothing to move
	ret
4$:	lcall	take_sram
	jnc	5$
	mov	r7, #NO_ROOM
	ret
5$:	mov	dptr, #DIRECTION
	movx	a, @dptr
	mov	r7, a
	ljmp	set_up_dma

	.org	0x28A0
set_up_dma:
	mov	dptr, #DMA_MODE
	movx	a, @dptr
	anl	a, #0xFC
	movx	@dptr, a
	mov	dptr, #DMA_GATE
	movx	a, @dptr
	clr	acc.1
	movx	@dptr, a
	mov	dptr, #DMA_CONTROL
	movx	a, @dptr
	mov	b, r7
	mov	c, b.1
	cpl	c
	mov	acc.0, c		; 1 from the host
	clr	acc.1			; do not start yet
	movx	@dptr, a
	ljmp	queue_direction
	.org	0x28D0
queue_direction:
	jnb	b.1, 1$
	ljmp	queue_read
1$:	ljmp	queue_write

	.org	0x2940
queue_read:
	; Notes which slots to free once the data is sent.
	mov	dptr, #DMA_FIRST
	movx	a, @dptr
	mov	r4, a
	inc	dptr
	movx	a, @dptr
	mov	r3, a
	mov	dph, #>READ_FIRST
	mov	a, #<READ_FIRST
	add	a, SLOT
	mov	dpl, a
	mov	a, r4
	movx	@dptr, a
	mov	a, #<READ_SLOTS
	add	a, SLOT
	mov	dpl, a
	mov	a, r3
	movx	@dptr, a
	lcall	start_dma
	ljmp	queued_read
	.org	0x29AD
queued_read:
	mov	r7, #READ_QUEUED
	ret

queue_write:
	mov	r7, #0
	lcall	ANNOUNCE
	lcall	start_dma
	; A write waits for an NVMe completion. With the status patch it is answered now.
	mov	dptr, #0x0470
	mov	a, #0x0E
	movx	@dptr, a
	ljmp	write_status
	.org	0x2A0D
write_status:
	mov	r7, #WRITE_QUEUED
	ret

; Starts a transfer of R6:R5 sectors for the running command's slot and stream.
start_dma:
	mov	dptr, #DMA_SECTORS
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r5
	movx	@dptr, a
	mov	dptr, #DMA_QUEUE_SLOT
	movx	a, @dptr
	anl	a, #0xC0
	orl	a, SLOT
	movx	@dptr, a
	mov	dptr, #OUT_STREAM
	movx	a, @dptr
	mov	r4, a
	inc	dptr
	movx	a, @dptr
	mov	dptr, #DMA_STREAM + 1
	movx	@dptr, a
	mov	dptr, #DMA_STREAM
	mov	a, r4
	movx	@dptr, a
	mov	dptr, #DMA_FIRST
	movx	a, @dptr
	mov	r4, a
	inc	dptr
	movx	a, @dptr		; slots
	add	a, r4
	mov	r3, a
	mov	dptr, #DMA_FIRST_SLOT
	mov	a, r4
	orl	a, #0x80
	movx	@dptr, a
	inc	dptr
	mov	a, r3
	movx	@dptr, a
	mov	dptr, #DMA_CONTROL
	movx	a, @dptr
	setb	acc.1
	movx	@dptr, a
	mov	dptr, #DMA_START
	mov	a, r4
	movx	@dptr, a
	ret

; Takes enough consecutive slots of 16 KiB for R6:R5 sectors: the first free group of 1, 2, 4, 8 or 16. Stores them at
; DMA_FIRST and DMA_SLOTS. Carry: no free group is large enough. Keeps R5 and R6.
take_sram:
	; R4 = (sectors + 31) / 32
	mov	a, r5
	add	a, #31
	mov	r4, a
	clr	a
	addc	a, r6
	jc	none_free
	mov	r3, a
	anl	a, #0xFC
	jnz	none_free		; more than 31 slots
	mov	a, r4
	swap	a
	rr	a
	anl	a, #0x07
	mov	r4, a
	mov	a, r3
	swap	a
	rr	a
	orl	a, r4
	mov	r4, a
	mov	dptr, #DMA_SLOTS
	movx	@dptr, a
	; R3 = the group's size, A = its number, R2 = the number of groups
	mov	r3, #1
	mov	dptr, #SRAM_FREE_1
	mov	r2, #32
	dec	a
	jz	1$
	mov	dptr, #SRAM_FREE_2
2$:	mov	a, r3			; the next size
	rl	a
	mov	r3, a
	mov	a, r2
	clr	c
	rrc	a
	mov	r2, a
	cjne	r3, #16, 3$
	; Groups of sixteen: two groups, one bit each.
	mov	a, r4
	add	a, #-17
	jc	none_free
	mov	dptr, #SRAM_FREE_16
	movx	a, @dptr
	jnb	acc.0, 4$
	clr	a
	sjmp	5$
4$:	jnb	acc.1, none_free
	mov	a, #1
	sjmp	5$
3$:	mov	a, r3
	clr	c
	subb	a, r4
	jnc	1$			; it is large enough
	inc	dptr
	sjmp	2$
1$:	movx	a, @dptr
	clr	c
	mov	r1, a
	subb	a, r2
	jnc	none_free
	mov	a, r1
5$:	mov	b, r3
	mul	ab
	mov	dptr, #DMA_FIRST
	movx	@dptr, a
	mov	r3, a
	mov	dptr, #SRAM_TAKE
6$:	mov	a, r3
	movx	@dptr, a
	inc	r3
	djnz	r4, 6$
	clr	c
	ret
none_free:
	setb	c
	ret

; --- The same over Bulk-Only: 3 for a read, 4 for a write. The status patch is on another path.
	.org	QUEUE_BULK
queue_bulk:
	lcall	QUEUE
	cjne	r7, #NO_ROOM, 1$
	ret
1$:	mov	dptr, #DRIVE_STARTED
	movx	a, @dptr
	jnz	2$
	mov	dptr, #SENSE_SET
	movx	a, @dptr
	jnz	2$			; refused
	mov	a, r5
	orl	a, r6
	jz	2$			; nothing to move
	mov	r7, #READ_QUEUED_BULK
	mov	dptr, #DIRECTION
	movx	a, @dptr
	jb	acc.1, 2$
	inc	r7
2$:	ret

; --- The DMA has moved all data of a transfer.
dma_events:
	mov	dptr, #DMA_EVENTS
	movx	a, @dptr
	jb	acc.0, read_gone
	jb	acc.1, write_came
	ret
; Data from the host has arrived. The command was answered already, or waits for an NVMe completion.
write_came:
	mov	dptr, #DMA_TAKE_OUT
	mov	a, #0xFF
	movx	@dptr, a
	mov	r0, #STATUS
	cjne	@r0, #DRIVE_OUT, dma_events
	lcall	part_came
	sjmp	dma_events
; Data has gone to the host, because a PCIe device wrote a completion entry. The engine sends the status.
read_gone:
	mov	r0, #STATUS
	cjne	@r0, #DRIVE_IN, 3$
	mov	dptr, #DMA_TAKE_IN
	mov	a, #0xFF
	movx	@dptr, a
	lcall	part_gone
	sjmp	dma_events
3$:	mov	dptr, #DMA_DONE_IN
	movx	a, @dptr
	anl	a, #0x1F
	mov	r7, a
	mov	dptr, #DMA_SEND_GOOD
	movx	@dptr, a
	mov	dph, #>READ_FIRST
	add	a, #<READ_FIRST
	mov	dpl, a
	movx	a, @dptr
	mov	r6, a
	mov	a, r7
	add	a, #<READ_SLOTS
	mov	dpl, a
	movx	a, @dptr
	mov	r5, a
	mov	dptr, #SRAM_FREE
1$:	mov	a, r6
	movx	@dptr, a
	inc	r6
	djnz	r5, 1$
	mov	dptr, #QUEUED
	movx	a, @dptr
	jz	2$
	dec	a
	movx	@dptr, a
2$:	mov	dptr, #DMA_TAKE_IN
	mov	a, #0xFF
	movx	@dptr, a
	sjmp	dma_events
