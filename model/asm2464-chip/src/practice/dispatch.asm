; From a command's opcode to its handler, for both transports. STATUS says how the command continues.

; --- Runs the command whose opcode is at OPCODE.
	.org	DISPATCH
dispatch:
	mov	dptr, #OPCODE
	movx	a, @dptr
	mov	r7, a
	xrl	a, #0x03		; REQUEST SENSE reports the sense data; all others clear it
	jz	1$
	clr	a
	mov	dptr, #SENSE_KEY
	movx	@dptr, a
	mov	dptr, #SENSE_ASC
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	; There is one logical unit. INQUIRY, REQUEST SENSE and REPORT LUNS also answer for others.
1$:	mov	dptr, #LUN
	movx	a, @dptr
	jz	2$
	cjne	r7, #0x03, 3$
	sjmp	2$
3$:	cjne	r7, #0x12, 4$
	sjmp	2$
4$:	cjne	r7, #0xA0, no_such_unit
2$:	lcall	transfer_direction
	jc	by_table
	lcall	QUEUE_BULK
	ljmp	dispatched
by_table:
	mov	dptr, #OPCODE
	movx	a, @dptr
	ljmp	cases
no_such_unit:
	mov	r5, #0x25
	ljmp	illegal
	.org	0x3912
cases:	lcall	CASE
	.dw	do_test_unit_ready
	.db	0x00
	.dw	do_request_sense
	.db	0x03
	.dw	do_inquiry
	.db	0x12
	.dw	do_mode_sense
	.db	0x1A
	.dw	do_good
	.db	0x1B			; START STOP UNIT
	.dw	do_good
	.db	0x1E			; PREVENT ALLOW MEDIUM REMOVAL
	.dw	do_read_capacity
	.db	0x25			; READ CAPACITY(10)
	.dw	do_flush
	.db	0x35			; SYNCHRONIZE CACHE(10)
	.dw	do_mode_sense
	.db	0x5A
	.dw	do_flush
	.db	0x91			; SYNCHRONIZE CACHE(16)
	.dw	do_read_capacity
	.db	0x9E			; READ CAPACITY(16)
	.dw	do_report_luns
	.db	0xA0
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
	.dw	do_nvme_admin
	.db	0xE6			; NVMe admin
	.dw	do_reset
	.db	0xE8
	.dw	0x0000
	.dw	unknown
do_test_unit_ready:
	lcall	drive_medium
	cjne	r7, #NO_DRIVE, 1$
	lcall	NVME_READY
	jc	do_no_medium
1$:	cjne	r7, #ANSWER, do_good
	sjmp	dispatched
do_good:
	mov	r7, #ANSWER
	sjmp	dispatched
do_no_medium:
	mov	r3, #0x00
	mov	r5, #0x3A
	mov	r7, #0x02
	sjmp	refused
; Returns if a drive is ready, otherwise ends the command.
need_drive:
	lcall	drive_medium
	mov	a, r7
	jnz	1$
	ret
1$:	dec	sp			; drop the return address, so as not to return to the command
	dec	sp
	cjne	a, #NO_DRIVE, dispatched
	sjmp	do_no_medium
do_read_capacity:
	lcall	need_drive
	lcall	read_capacity
	sjmp	dispatched
do_nvme_admin:
	lcall	need_drive
	lcall	nvme_admin
	sjmp	dispatched
do_flush:
	lcall	need_drive
	lcall	nvme_flush
	mov	r7, #ANSWER
	jnc	dispatched
	lcall	write_fault
	sjmp	dispatched
do_request_sense:
	lcall	request_sense
	sjmp	dispatched
do_inquiry:
	lcall	inquiry
	sjmp	dispatched
do_mode_sense:
	lcall	mode_sense
	sjmp	dispatched
do_report_luns:
	lcall	report_luns
	sjmp	dispatched
do_config_read:
	lcall	config_read
	sjmp	dispatched
do_config_write:
	lcall	config_write
	sjmp	dispatched
do_flash_read:
	lcall	flash_read
	sjmp	dispatched
do_firmware_write:
	lcall	firmware_write
	sjmp	dispatched
do_xdata_read:
	lcall	xdata_read
	sjmp	dispatched
do_xdata_write:
	lcall	xdata_write
	sjmp	dispatched
do_reset:
	lcall	reset
	sjmp	dispatched
unknown:
	mov	r5, #0x20
illegal:
	mov	r3, #0x00
	mov	r7, #0x05
refused:
	lcall	SET_SENSE
	mov	r7, #ANSWER
dispatched:
	mov	r0, #STATUS
	mov	@r0, 0x07
	ret

; R7 = the direction of the READ(10), WRITE(10), READ(16) or WRITE(16) at OPCODE. Sets carry for any other command.
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

; --- Runs a command over UAS: queues READ and WRITE for the stream, dispatches all others through the table.
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
	mov	dptr, #LUN
	movx	a, @dptr
	jnz	1$
	lcall	transfer_direction
	jc	1$
	lcall	QUEUE
	mov	r0, #STATUS
	mov	@r0, 0x07
	ljmp	FINISH
1$:	lcall	DISPATCH
	ljmp	FINISH

; --- Continues after a command, as STATUS says.
	.org	FINISH
finish:
	mov	r0, #STATUS
	mov	a, @r0
	lcall	CASE
	.dw	finish_in
	.db	DATA_IN
	.dw	finish_packets
	.db	DATA_IN_PACKETS
	.dw	finish_out
	.db	DATA_OUT
	.dw	finish_answer
	.db	ANSWER
	.dw	finish_read
	.db	READ_QUEUED
	.dw	finish_write
	.db	WRITE_QUEUED
	.dw	drive_in
	.db	DRIVE_IN
	.dw	drive_out
	.db	DRIVE_OUT
	.dw	finish_no_room
	.db	NO_ROOM
	.dw	0x0000
	.dw	finish_none
finish_in:
	mov	r7, #1
	lcall	ANNOUNCE
	ljmp	arm_in
finish_packets:
	mov	r7, #1
	lcall	ANNOUNCE
	ljmp	SEND_IN
finish_out:
	mov	r7, #0
	lcall	ANNOUNCE
	ljmp	arm_out
finish_answer:
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jb	acc.0, 1$
	ljmp	send_csw
1$:	ljmp	send_sense
; A queued transfer lets other READs and WRITEs continue until its completion arrives. One that found no room waits
; forever, as in 240417: nothing resumes it when slots are freed.
finish_no_room:
	mov	dptr, #0x044D
	sjmp	transfer_waits
finish_read:
	mov	dptr, #0x06E6
	sjmp	transfer_waits
finish_write:
	mov	dptr, #0x07EA
transfer_waits:
	mov	a, #1
	movx	@dptr, a
	mov	dptr, #QUEUED
	movx	a, @dptr
	inc	a
	movx	@dptr, a
	mov	dptr, #BUSY
	clr	a
	movx	@dptr, a
finish_none:
	ret

; --- Sets sense data: sense key R7, additional code R5, qualifier R3.
	.org	SET_SENSE
set_sense:
	mov	dptr, #SENSE
	mov	a, #0x70
	movx	@dptr, a
	mov	dptr, #SENSE_KEY
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #SENSE + 7
	mov	a, #10			; bytes that follow this one
	movx	@dptr, a
	mov	dptr, #SENSE_ASC
	mov	a, r5
	movx	@dptr, a
	inc	dptr
	mov	a, r3
	movx	@dptr, a
	mov	dptr, #SENSE_SET
	mov	a, #1
	movx	@dptr, a
	ret
