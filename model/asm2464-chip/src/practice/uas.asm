; UAS: receives command and task management units, sends sense and response units. USB Attached SCSI, UAS-3.
;
; The engine keeps each unit in one of 32 slots until the slot's status is sent. Commands that arrive while another one
; uses the data buffer wait in order.

; --- Takes all units that the engine has.
	.org	0x1600
uas_units:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jnb	acc.0, 9$
1$:	mov	dptr, #UAS_WAITS
	movx	a, @dptr
	jnb	acc.0, 9$
	mov	dptr, #UAS_NEXT
	movx	a, @dptr
	mov	r7, a
	mov	dptr, #UNIT_SLOT
	movx	@dptr, a
	mov	dptr, #UNIT_OF
	movx	@dptr, a
	inc	dptr			; UNIT_STATE
2$:	movx	a, @dptr
	jnb	acc.0, 2$
	; Overlapped tag: the older command continues, this one ends here.
	mov	dptr, #UAS_OVERLAPPED
	movx	a, @dptr
	mov	r6, #0x0A
	jb	acc.0, 4$
	mov	dptr, #UNIT_ID
	movx	a, @dptr
	cjne	a, #0x01, 3$
	; A command: append it to the waiting ones.
	mov	dptr, #WAITING_COUNT
	movx	a, @dptr
	mov	r6, a
	inc	a
	movx	@dptr, a
	mov	a, #<WAITING
	add	a, r6
	mov	dpl, a
	mov	dph, #>WAITING
	mov	a, r7
	movx	@dptr, a
	sjmp	5$
3$:	mov	r6, #0x02		; invalid information unit
	cjne	a, #0x05, 4$
	lcall	manage_tasks
4$:	lcall	send_response
5$:	mov	dptr, #UAS_NEXT
	mov	a, #0xFF		; taken
	movx	@dptr, a
	sjmp	1$
9$:	ret

; R6 = the response to the task management unit in slot R7. As in 240417, "complete" changes nothing: SET_INTERFACE
; frees a command that hangs.
manage_tasks:
	mov	a, r7
	lcall	unit_at
	mov	a, dpl
	add	a, #9
	mov	dpl, a			; LUN
	movx	a, @dptr
	mov	r6, #0x09		; incorrect logical unit number
	jnz	1$
	mov	a, dpl
	add	a, #-5
	mov	dpl, a			; function
	movx	a, @dptr
	mov	r6, #0x00		; complete
	cjne	a, #0x01, 2$		; abort task
	ret
2$:	cjne	a, #0x02, 3$		; abort task set
	ret
3$:	cjne	a, #0x04, 4$		; clear task set
	ret
4$:	cjne	a, #0x08, 5$		; logical unit reset
	ret
5$:	cjne	a, #0x10, 6$		; I_T nexus reset
	ret
6$:	cjne	a, #0x40, 7$		; clear ACA
	ret
7$:	cjne	a, #0x80, 8$		; query task
	ret
8$:	mov	r6, #0x08		; succeeded
	cjne	a, #0x81, 9$		; query task set
	ret
9$:	mov	r6, #0x04		; not supported
1$:	ret

; DPTR = the unit in slot A.
unit_at:
	swap	a
	rl	a			; slot * 0x20, with the high bits at the bottom
	mov	b, a
	anl	a, #0xE0
	mov	dpl, a
	mov	a, b
	anl	a, #0x03
	orl	a, #>UNITS
	mov	dph, a
	ret

; --- Runs waiting commands while the data buffer is free.
run_waiting:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jnb	acc.0, 9$
	mov	dptr, #BUSY
	movx	a, @dptr
	jnz	9$
	mov	dptr, #RESET_STATE
	movx	a, @dptr
	jnz	9$			; a restart is pending
	mov	r6, #0
1$:	mov	dptr, #WAITING_COUNT
	movx	a, @dptr
	xrl	a, r6
	jz	9$
	mov	a, #<WAITING
	add	a, r6
	mov	dpl, a
	mov	dph, #>WAITING
	movx	a, @dptr
	mov	r7, a			; the slot
	; While a READ or WRITE waits for its completion, only other READs and WRITEs run.
	mov	dptr, #QUEUED
	movx	a, @dptr
	jz	2$
	mov	a, r7
	lcall	unit_at
	mov	a, dpl
	add	a, #0x10
	mov	dpl, a
	movx	a, @dptr
	mov	dptr, #OPCODE
	movx	@dptr, a
	mov	a, r7
	mov	r5, a
	lcall	transfer_direction
	mov	a, r5
	mov	r7, a
	jnc	2$
	inc	r6
	sjmp	1$
9$:	ret
	; Removes it. The ones behind it move up.
2$:	mov	dptr, #WAITING_COUNT
	movx	a, @dptr
	dec	a
	movx	@dptr, a
	mov	r5, a
	mov	a, #<WAITING
	add	a, r6
	mov	dpl, a
	mov	dph, #>WAITING
3$:	mov	a, r6
	xrl	a, r5
	jz	4$
	inc	dpl
	movx	a, @dptr
	dec	dpl
	movx	@dptr, a
	inc	dpl
	inc	r6
	sjmp	3$
4$:	lcall	run_command
	ljmp	run_waiting

; Runs the command in slot R7.
run_command:
	mov	SLOT, r7
	mov	dptr, #BUSY
	mov	a, #1
	movx	@dptr, a
	lcall	new_command
	mov	a, SLOT
	lcall	unit_at
	; CDB byte k is at the unit + 0x10 + k, which is the pointer + 0x0F + k.
	mov	r2, dph
	mov	a, dpl
	inc	a
	mov	r1, a
	inc	dptr
	inc	dptr			; the tag, which is the stream of the data in both directions
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r7, a
	mov	a, dpl
	add	a, #6
	mov	dpl, a
	movx	a, @dptr
	mov	dptr, #LUN
	movx	@dptr, a
	mov	dptr, #IN_STREAM
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	inc	dptr			; OUT_STREAM
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #CDB_POINTER + 1
	mov	a, r2
	movx	@dptr, a
	inc	dptr
	mov	a, r1
	movx	@dptr, a
	ljmp	DISPATCH_UAS

; --- Answers the running command with its status, and sense data if there is any.
send_sense:
	mov	r7, SLOT
	lcall	begin_status
	mov	a, #0x03		; sense unit
	movx	@dptr, a
	mov	r5, #16
	mov	dptr, #SENSE_SET
	movx	a, @dptr
	jz	2$
	mov	dptr, #STATUS_BUFFER + 6
	mov	a, #0x02		; check condition
	movx	@dptr, a
	mov	dptr, #STATUS_BUFFER + 15
	mov	a, #18			; bytes of sense
	movx	@dptr, a
	mov	r6, #0
1$:	mov	a, r6
	add	a, #<SENSE
	mov	dpl, a
	mov	dph, #>SENSE
	movx	a, @dptr
	mov	r4, a
	mov	a, r6
	add	a, #16
	mov	dpl, a
	mov	dph, #>STATUS_BUFFER
	mov	a, r4
	movx	@dptr, a
	inc	r6
	cjne	r6, #18, 1$
	mov	r5, #34
2$:	mov	dptr, #BUSY
	clr	a
	movx	@dptr, a
	sjmp	end_status

; Sends response R6 to the unit in slot UNIT_SLOT.
send_response:
	mov	dptr, #UNIT_SLOT
	movx	a, @dptr
	mov	r7, a
	lcall	begin_status
	mov	a, #0x04		; response unit
	movx	@dptr, a
	mov	dptr, #STATUS_BUFFER + 7
	mov	a, r6
	movx	@dptr, a
	mov	r5, #8

; Sends R5 bytes of the status buffer as slot R7's status.
end_status:
	mov	a, r7
	add	a, #<STATUS_LENGTHS
	mov	dpl, a
	mov	dph, #>STATUS_LENGTHS
	mov	a, r5
	movx	@dptr, a
	mov	a, r7
	add	a, #<STATUS_SEND
	mov	dpl, a
	mov	dph, #>STATUS_SEND
	mov	a, #1
	movx	@dptr, a
	ret

; The status buffer of slot R7: 16 bytes, zero except the tag. DPTR = its beginning. Keeps R6.
begin_status:
	mov	a, r7
	orl	a, #0x80
	mov	dptr, #UAS_STATUS_SLOT
	movx	@dptr, a
	mov	dptr, #STATUS_BUFFER
	mov	r5, #16
	clr	a
1$:	movx	@dptr, a
	inc	dptr
	djnz	r5, 1$
	mov	dptr, #UAS_ASK
	movx	a, @dptr
	anl	a, #0xC0
	orl	a, r7
	movx	@dptr, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
	inc	dptr
	movx	a, @dptr
	mov	dptr, #STATUS_BUFFER + 3
	movx	@dptr, a
	mov	dptr, #STATUS_BUFFER + 2
	mov	a, r5
	movx	@dptr, a
	mov	dptr, #STATUS_BUFFER
	ret

; --- A unit found no free slot, and is where a CBW would be. Answers TASK SET FULL with a status that has no slot.
unit_without_slot:
	mov	dptr, #CBW_CAME
	mov	a, #1
	movx	@dptr, a
	mov	dptr, #UAS_STATUS_SLOT
	mov	a, #0xA0
	movx	@dptr, a
	mov	dptr, #STATUS_BUFFER
	mov	r5, #16
	clr	a
1$:	movx	@dptr, a
	inc	dptr
	djnz	r5, 1$
	mov	dptr, #CBW + 2		; its tag
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r7, a
	mov	dptr, #STATUS_BUFFER
	mov	a, #0x03
	movx	@dptr, a
	mov	dptr, #STATUS_BUFFER + 2
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #STATUS_BUFFER + 6
	mov	a, #0x28		; task set full
	movx	@dptr, a
	mov	dptr, #LOOSE_LENGTH
	mov	a, #16
	movx	@dptr, a
	inc	dptr			; LOOSE_TAG
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #LOOSE_SEND
	mov	a, #1
	movx	@dptr, a
	ret
