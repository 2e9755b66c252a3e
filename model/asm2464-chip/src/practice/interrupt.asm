; INT0: all events of the chip. The line is a level: it stays active while any source is on, so events that one pass
; leaves interrupt the CPU again at once.

	.org	INT0
int0:	push	psw
	push	acc
	push	b
	push	dpl
	push	dph
	mov	psw, #0
	push	0x07
	push	0x06
	push	0x05
	push	0x04
	push	0x03
	push	0x02
	push	0x01
	push	0x00
	; Common code runs with bank 0 selected, whichever bank was interrupted.
	push	BANK
	push	BANK_RETURN
	push	XPAGE
	mov	BANK, #0
	mov	BANK_RETURN, #0x0A
	mov	XPAGE, #0
	mov	dptr, #INT_SOURCES
	movx	a, @dptr
	jnb	acc.0, 1$
	lcall	usb_events
1$:	mov	dptr, #INT_SOURCES
	movx	a, @dptr
	jnb	acc.2, 2$
	lcall	uas_units
	lcall	dma_events
2$:	mov	dptr, #INT_SOURCES_2
	movx	a, @dptr
	jnb	acc.5, 3$
	; An NVMe device's completion entry. The DMA reads it itself, so it only needs an acknowledgement.
	mov	dptr, #NVME_EVENTS
	mov	a, #0x08
	movx	@dptr, a
3$:	lcall	run_waiting
	mov	dptr, #DMA_INT_END
	mov	a, #1
	movx	@dptr, a
	pop	XPAGE
	pop	BANK_RETURN
	pop	BANK
	pop	0x00
	pop	0x01
	pop	0x02
	pop	0x03
	pop	0x04
	pop	0x05
	pop	0x06
	pop	0x07
	pop	dph
	pop	dpl
	pop	b
	pop	acc
	pop	psw
	reti

; Every event is acknowledged before it is handled, because handling it may cause the next event of the same kind.
usb_events:
	lcall	bus_and_control
	mov	dptr, #USB_EVENTS
	movx	a, @dptr
	jnb	acc.5, 1$
	lcall	status_gone
1$:	mov	dptr, #BULK_EVENTS
	movx	a, @dptr
	jnb	acc.3, 2$
	mov	a, #0x08
	movx	@dptr, a
	lcall	PACKET_GONE
2$:	mov	dptr, #BULK_EVENTS
	movx	a, @dptr
	jnb	acc.1, 3$
	mov	a, #0x02
	movx	@dptr, a
	lcall	DATA_OUT_CAME
3$:	mov	dptr, #BULK_EVENTS
	movx	a, @dptr
	anl	a, #0x05		; the host has given up a transfer
	jz	4$
	movx	@dptr, a
4$:	mov	dptr, #CBW_CAME
	movx	a, @dptr
	jnb	acc.0, 5$
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jb	acc.0, 6$
	mov	dptr, #CBW_CAME
	mov	a, #1
	movx	@dptr, a
	ljmp	cbw_came
6$:	ljmp	unit_without_slot
5$:	ret

; The events that must be handled even while a command waits for its data: the bus and the control endpoint.
bus_and_control:
	; Writes the active bits back, which clears them.
	mov	dptr, #LINK_EVENTS
	movx	a, @dptr
	movx	@dptr, a
	anl	a, #0x01		; hot reset
	mov	r6, a
	mov	dptr, #BUS_EVENTS
	movx	a, @dptr
	movx	@dptr, a
	inc	dptr
	movx	a, @dptr
	movx	@dptr, a
	anl	a, #0x80		; USB 2 reset
	orl	a, r6
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	movx	@dptr, a
	; Suspend and resume need no action.
	mov	a, r6
	jz	1$
	lcall	bus_reset
1$:	mov	dptr, #USB_EVENTS
	movx	a, @dptr
	jnb	acc.1, 2$
	ljmp	ep0_service
2$:	ret

; A slot's status has gone to the host.
status_gone:
	; R6 = whether it is the last command's
	mov	a, SLOT
	anl	a, #0x07
	mov	r7, a
	inc	r7
	mov	a, #0x80
1$:	rl	a
	djnz	r7, 1$
	mov	r6, a
	mov	a, SLOT
	swap	a
	rl	a
	anl	a, #0x03		; slot / 8
	add	a, #<STATUS_SENT
	mov	dpl, a
	mov	dph, #>STATUS_SENT
	movx	a, @dptr
	anl	a, r6
	mov	r6, a
	mov	dptr, #STATUS_SENT
	mov	r7, #9			; LOOSE_SENT comes last
2$:	movx	a, @dptr
	jz	3$
	movx	@dptr, a
3$:	inc	dptr
	djnz	r7, 2$
	; The host has E8's answer, so the main loop may restart the CPU.
	mov	dptr, #RESET_STATE
	movx	a, @dptr
	jz	4$
	mov	a, r6
	jz	4$
	mov	dptr, #RESTART
	mov	a, #1
	movx	@dptr, a
	ret
	; Accepts the next CBW, or over UAS the next unit without a slot.
4$:	mov	dptr, #MSC_CONTROL
	mov	a, #2
	movx	@dptr, a
	ret

; ---------------------------------------------------------------------------------------------------------------
; Resets. Each one restarts the transport. A bus reset and SET_CONFIGURATION do more.
	.org	0x10C0
bus_reset:
	clr	a
	mov	dptr, #USB_ADDRESS
	movx	@dptr, a
	mov	dptr, #CONFIGURATION
	movx	@dptr, a
	mov	dptr, #ALTERNATE
	movx	@dptr, a
	mov	dptr, #POWER_FEATURES
	movx	@dptr, a
	mov	dptr, #NEW_ADDRESS
	dec	a
	movx	@dptr, a
; Applies ALTERNATE, the interface's alternate setting, with endpoints as new.
interface_reset:
	mov	dptr, #BULK_HALTS
	movx	a, @dptr
	anl	a, #0x7E
	movx	@dptr, a
	mov	dptr, #STATUS_HALT
	movx	a, @dptr
	clr	acc.0
	movx	@dptr, a
	mov	dptr, #COMMAND_HALT
	movx	a, @dptr
	clr	acc.0
	movx	@dptr, a
; Bulk-Only reset: drops every command, but leaves halted endpoints halted.
transport_reset:
	mov	dptr, #BULK_ARM
	mov	a, #0x09		; drops armed packets
	movx	@dptr, a
	mov	dptr, #BULK_EVENTS
	mov	a, #0x0F
	movx	@dptr, a
	mov	dptr, #MSC_CONTROL
	mov	a, #1
	movx	@dptr, a
	mov	dptr, #MSC_RESTART
	movx	@dptr, a
	mov	dptr, #ABORTED
	movx	@dptr, a
	; Bit 0 of 0x9000 is the alternate setting.
	mov	dptr, #ALTERNATE
	movx	a, @dptr
	mov	r7, a
	mov	dptr, #USB_MODE
	movx	a, @dptr
	anl	a, #0xFE
	orl	a, r7
	movx	@dptr, a
	clr	a
	mov	dptr, #BUSY
	movx	@dptr, a
	mov	dptr, #QUEUED
	movx	@dptr, a
	mov	dptr, #WAITING_COUNT
	movx	@dptr, a
	mov	dptr, #BAD_CBW
	movx	@dptr, a
	mov	dptr, #SENSE_SET
	movx	@dptr, a
	; Ends a GPU runtime's initialisation, as 240417 does.
	mov	dptr, #SRAM_SECTORS
	movx	@dptr, a
	mov	dptr, #NVME_PRESENT
	movx	@dptr, a
	mov	dptr, #NVME_STATE
	movx	@dptr, a
	; No DMA waits for a lost drive any more, so the firmware may look for it again.
	mov	dptr, #DRIVE_STATE
	movx	a, @dptr
	cjne	a, #DRIVE_LOST, 1$
	clr	a
	movx	@dptr, a
1$:	mov	r0, #STATUS
	mov	@r0, #NO_ANSWER
	mov	dptr, #MSC_CONTROL
	mov	a, #2
	movx	@dptr, a
	ret
