; Bulk-Only: receives a CBW, runs its command, sends its CSW. USB Mass Storage Class, Bulk-Only Transport 1.0. Case
; numbers are those of its table of thirteen cases.

; --- A CBW arrived. It is valid with 31 bytes and its signature, and meaningful if LUN and CDB length are possible.
	.org	0x1180
cbw_came:
	mov	dptr, #CBW_LENGTH
	movx	a, @dptr
	jnz	bad_cbw
	inc	dptr
	movx	a, @dptr
	cjne	a, #31, bad_cbw
	mov	r6, #0
1$:	mov	a, r6
	mov	dptr, #signatures
	movc	a, @a+dptr
	mov	r5, a
	mov	a, r6
	add	a, #<CBW
	mov	dpl, a
	mov	dph, #>CBW
	movx	a, @dptr
	xrl	a, r5
	jnz	bad_cbw
	inc	r6
	cjne	r6, #4, 1$
	mov	dptr, #CBW + 13
	movx	a, @dptr
	anl	a, #0xF0
	jnz	bad_cbw
	mov	dptr, #CBW + 14
	movx	a, @dptr
	jz	bad_cbw
	add	a, #-17
	jnc	good_cbw
; Both pipes stay halted until a Bulk-Only reset: if the host clears the halts, they are set again.
bad_cbw:
	mov	dptr, #BAD_CBW
	mov	a, #1
	movx	@dptr, a
halt_both:
	mov	dptr, #BULK_HALTS
	movx	a, @dptr
	orl	a, #0x81
	movx	@dptr, a
	ret

signatures:
	.ascii	"USBCUSBS"

good_cbw:
	; The CSW begins with its signature and the CBW's tag.
	mov	r6, #0
1$:	mov	a, r6
	jb	acc.2, 2$
	add	a, #4
	mov	dptr, #signatures
	movc	a, @a+dptr
	sjmp	3$
2$:	add	a, #<CBW
	mov	dpl, a
	mov	dph, #>CBW
	movx	a, @dptr
3$:	mov	dph, #>STATUS_BUFFER
	mov	dpl, r6
	movx	@dptr, a
	inc	r6
	cjne	r6, #8, 1$
	; dCBWDataTransferLength is little-endian.
	mov	dptr, #CBW + 8
	mov	r0, #HOST_LENGTH + 3
4$:	movx	a, @dptr
	mov	@r0, a
	inc	dptr
	dec	r0
	cjne	r0, #HOST_LENGTH - 1, 4$
	movx	a, @dptr		; bmCBWFlags
	anl	a, #0x80
	mov	dptr, #HOST_DIRECTION
	movx	@dptr, a
	mov	dptr, #CBW + 13
	movx	a, @dptr
	mov	dptr, #LUN
	movx	@dptr, a
	mov	dptr, #CBW + 15
	movx	a, @dptr
	mov	dptr, #OPCODE
	movx	@dptr, a
	; The CDB stays where it arrived.
	mov	dptr, #CDB_POINTER
	mov	a, #1
	movx	@dptr, a
	inc	dptr
	mov	a, #>CBW
	movx	@dptr, a
	inc	dptr
	mov	a, #<CBW
	movx	@dptr, a
	mov	SLOT, #0
	mov	dptr, #PHASE_ERROR
	clr	a
	movx	@dptr, a
	lcall	new_command
	lcall	DISPATCH
	mov	r0, #STATUS
	mov	a, @r0
	lcall	CASE
	.dw	bulk_in
	.db	DATA_IN
	.dw	bulk_in
	.db	DATA_IN_PACKETS
	.dw	bulk_out
	.db	DATA_OUT
	.dw	bulk_in
	.db	DRIVE_IN
	.dw	bulk_out
	.db	DRIVE_OUT
	.dw	bulk_answer
	.db	ANSWER
	.dw	0x0000
	.dw	bulk_nothing		; nothing to do: a READ or WRITE is queued, or the transport was reset

; Sets up a command's variables, for both transports.
new_command:
	clr	a
	mov	dptr, #SENSE_SET
	movx	@dptr, a
	mov	dptr, #CASE_OF_THIRTEEN
	movx	@dptr, a
	mov	dptr, #ABORTED
	movx	@dptr, a
	mov	r0, #LENGTH
	lcall	clear_dword
	mov	r0, #RESIDUE
	lcall	clear_dword
	mov	r0, #OUT_LEFT
	lcall	clear_dword
	mov	r0, #SURPLUS
	lcall	clear_dword
	mov	r0, #STATUS
	mov	@r0, #ANSWER
bulk_nothing:
	ret

; --- Data to the host: LENGTH bytes from the command; the host expects HOST_LENGTH.
bulk_in:
	mov	r0, #HOST_LENGTH
	lcall	is_zero
	jz	phase_error_no_data	; case 2
	mov	dptr, #HOST_DIRECTION
	movx	a, @dptr
	jz	phase_error_out		; case 10
	mov	r0, #HOST_LENGTH
	mov	r1, #LENGTH
	lcall	subtract
	jc	phase_error_in		; case 7
	mov	r0, #RESIDUE
	lcall	STORE_DWORD
	lcall	note_short
	mov	r0, #STATUS
	cjne	@r0, #DATA_IN, 1$
	ljmp	arm_in			; IN_LENGTH is already set
1$:	cjne	@r0, #DRIVE_IN, 2$
	ljmp	drive_in
2$:	ljmp	SEND_IN

; The host's data direction or length conflicts with the command's. The CSW reports a phase error.
phase_error_out:
	mov	dptr, #PHASE_ERROR
	mov	a, #1
	movx	@dptr, a
	lcall	expect_all
	ljmp	discard_out
phase_error_in:
	lcall	halt_in
phase_error_no_data:
	mov	dptr, #PHASE_ERROR
	mov	a, #1
	movx	@dptr, a
	ljmp	send_csw

; --- Data from the host: LENGTH bytes for the command; the host has HOST_LENGTH.
bulk_out:
	mov	r0, #HOST_LENGTH
	lcall	is_zero
	jnz	1$
	mov	r0, #LENGTH
	lcall	is_zero
	jnz	phase_error_no_data	; case 3
	sjmp	send_csw
1$:	mov	dptr, #HOST_DIRECTION
	movx	a, @dptr
	jnz	phase_error_in		; case 8
	mov	r0, #HOST_LENGTH
	mov	r1, #LENGTH
	lcall	subtract
	jc	phase_error_out		; case 13
	mov	r0, #SURPLUS
	lcall	STORE_DWORD
	mov	r0, #STATUS
	cjne	@r0, #DRIVE_OUT, 2$
	ljmp	drive_out
2$:	lcall	expect_all
	mov	r0, #LENGTH
	lcall	is_zero
	jz	discard_out
	ljmp	arm_out

; --- The command has no data.
bulk_answer:
	mov	r0, #HOST_LENGTH
	lcall	is_zero
	jz	2$			; case 1, or an E2 that has sent its data
	mov	dptr, #HOST_DIRECTION
	movx	a, @dptr
	jz	1$
	; Case 4: the host waits for data that will not come. The halt ends its wait.
	mov	r0, #HOST_LENGTH
	lcall	LOAD_DWORD
	mov	r0, #RESIDUE
	lcall	STORE_DWORD
	lcall	halt_in
	sjmp	send_csw
2$:	lcall	halt_if_short
	sjmp	send_csw
	; case 9
1$:	mov	r0, #HOST_LENGTH
	lcall	LOAD_DWORD
	mov	r0, #SURPLUS
	lcall	STORE_DWORD
	lcall	expect_all
; Takes OUT_LEFT bytes from the host before the answer. The host reads the CSW only afterwards.
discard_out:
	mov	r0, #STATUS
	mov	@r0, #DISCARD
	ljmp	arm_out

expect_all:
	mov	r0, #HOST_LENGTH
	lcall	LOAD_DWORD
	mov	r0, #OUT_LEFT
	ljmp	STORE_DWORD

; --- Sends the CSW, whose first bytes are already set.
send_csw:
	mov	r0, #STATUS
	mov	@r0, #ANSWER
	mov	r0, #RESIDUE + 3	; little-endian on the wire
	mov	dptr, #STATUS_BUFFER + 8
1$:	mov	a, @r0
	movx	@dptr, a
	inc	dptr
	dec	r0
	cjne	r0, #RESIDUE - 1, 1$
	mov	dptr, #SENSE_SET
	movx	a, @dptr
	mov	r7, a			; 1: check condition
	mov	dptr, #PHASE_ERROR
	movx	a, @dptr
	jz	2$
	mov	r7, #2
2$:	mov	dptr, #STATUS_BUFFER + 12
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #STATUS_LENGTHS
	mov	a, #13
	movx	@dptr, a
	mov	dptr, #STATUS_SEND
	mov	a, #1
	movx	@dptr, a
	ret

halt_if_short:
	mov	dptr, #CASE_OF_THIRTEEN
	movx	a, @dptr
	xrl	a, #3
	jz	halt_in
	ret
halt_in:
	mov	dptr, #BULK_HALTS
	movx	a, @dptr
	setb	acc.0
	movx	@dptr, a
	ret

; Data-in is shorter than the host expects (case 5). A short packet ends the transfer. If the last packet is full, a
; halt must end it: 3 at CASE_OF_THIRTEEN.
	.org	NOTE_SHORT
note_short:
	mov	r0, #RESIDUE
	lcall	is_zero
	jz	3$
	mov	r0, #LENGTH
	lcall	is_zero
	jz	3$			; an empty packet is a short one
	mov	a, LENGTH + 3
	mov	dptr, #USB_SPEED
	jnz	1$
	movx	a, @dptr
	mov	r7, #0x03
	jb	acc.1, 2$		; super speed: 0x400
	mov	r7, #0x01		; high speed: 0x200
2$:	mov	a, LENGTH + 2
	anl	a, r7
	jnz	3$
4$:	mov	dptr, #CASE_OF_THIRTEEN
	mov	a, #3
	movx	@dptr, a
3$:	ret
1$:	mov	r7, a
	movx	a, @dptr
	anl	a, #0x03
	jnz	3$
	mov	a, r7			; full speed: 0x40
	anl	a, #0x3F
	jz	4$
	ret
