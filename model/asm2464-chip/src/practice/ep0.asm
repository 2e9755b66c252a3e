; Bank 0: the control endpoint. USB 3.2, chapter 9, and Bulk-Only's two class requests.
;
; Each stage of a request is an event in EP0_EVENTS. SETUP comes first. A read continues with IN wanted for each packet,
; and the host's empty OUT packet. A write with data continues with OUT offered, OUT taken and the status stage. All
; other requests have only the status stage.

	.org	EP0_SERVICE
ep0_event:
	mov	dptr, #EP0_EVENTS
	movx	a, @dptr
	jb	acc.0, setup_came
	jb	acc.3, 1$
	jb	acc.1, 2$
	jb	acc.2, 3$
	jb	acc.4, 4$
	ret
1$:	ljmp	in_wanted
2$:	ljmp	out_offered
3$:	ljmp	out_taken
4$:	ljmp	status_stage

; --- R7 = bmRequestType, R6 = bRequest, R4:R5 = wValue, R2:R3 = wIndex.
setup_came:
	mov	a, #0x01
	movx	@dptr, a
	clr	a
	mov	dptr, #EP0_AT
	movx	@dptr, a
	inc	dptr			; EP0_LEFT
	movx	@dptr, a
	mov	dptr, #NEW_ADDRESS
	dec	a
	movx	@dptr, a
	mov	dptr, #EP0_SETUP
	movx	a, @dptr
	mov	r7, a
	inc	dptr
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
	inc	dptr
	movx	a, @dptr
	mov	r4, a
	inc	dptr
	movx	a, @dptr
	mov	r3, a
	inc	dptr
	movx	a, @dptr
	mov	r2, a
	mov	a, r7
	anl	a, #0x60
	jz	standard_request
	xrl	a, #0x20
	jz	1$
	ljmp	stall
1$:	ljmp	class_request

standard_request:
	mov	a, r6
	lcall	CASE			; keeps R2 to R7
	.dw	get_status
	.db	0
	.dw	change_feature
	.db	1
	.dw	change_feature
	.db	3
	.dw	set_address
	.db	5
	.dw	get_descriptor
	.db	6
	.dw	get_configuration
	.db	8
	.dw	set_configuration
	.db	9
	.dw	get_interface
	.db	10
	.dw	set_interface
	.db	11
	.dw	set_sel
	.db	48
	.dw	set_isoch_delay
	.db	49
	.dw	0x0000
	.dw	stall

; --- GET_STATUS
get_status:
	mov	a, r4
	orl	a, r5
	orl	a, r2
	jnz	stall
	cjne	r7, #0x80, 1$
	mov	a, r3
	jnz	stall
	mov	dptr, #POWER_FEATURES
	movx	a, @dptr
	orl	a, #0x01		; self-powered
	sjmp	two_bytes
1$:	cjne	r7, #0x81, 2$
	lcall	is_configured
	jz	stall
	mov	a, r3			; interface 0 exists
	jz	two_bytes
	sjmp	stall
2$:	cjne	r7, #0x82, stall
	lcall	find_halt
	jc	stall
	movx	a, @dptr
	anl	a, r1
	jz	two_bytes
	mov	a, #1
two_bytes:
	mov	dptr, #EP0_REPLY
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	mov	r7, #2
	ljmp	reply

stall:	mov	dptr, #EP0_COMMAND
	mov	a, #1
	movx	@dptr, a
	ret

; A = 0 unless the unit is configured.
is_configured:
	mov	dptr, #CONFIGURATION
	movx	a, @dptr
	ret

; Finds the halt of endpoint R3: register DPTR, bit R1. R1 = 0 for the control endpoint, which is never halted. Carry:
; the endpoint doesn't exist in this setting.
find_halt:
	mov	r1, #0
	mov	dptr, #BULK_HALTS
	mov	a, r3
	anl	a, #0x7F
	jz	2$
	lcall	is_configured
	jz	1$
	mov	dptr, #BULK_HALTS
	mov	r1, #0x01
	cjne	r3, #0x81, 3$
	sjmp	2$
3$:	mov	r1, #0x80
	cjne	r3, #0x02, 4$
	sjmp	2$
4$:	mov	dptr, #ALTERNATE
	movx	a, @dptr
	jz	1$
	mov	r1, #0x01
	mov	dptr, #STATUS_HALT
	cjne	r3, #0x83, 5$
	sjmp	2$
5$:	mov	dptr, #COMMAND_HALT
	cjne	r3, #0x04, 1$
2$:	clr	c
	ret
1$:	setb	c
	ret

; --- CLEAR_FEATURE (R6 = 1) and SET_FEATURE (R6 = 3)
change_feature:
	mov	a, r4
	jnz	stall
	cjne	r7, #0x02, 1$
	; ENDPOINT_HALT
	mov	a, r5
	orl	a, r2
	jnz	stall
	lcall	find_halt
	jc	stall
	mov	a, r1
	cpl	a
	mov	r0, a
	movx	a, @dptr
	anl	a, r0
	cjne	r6, #3, 2$
	orl	a, r1
2$:	movx	@dptr, a
	; The halts of an invalid CBW stay until a Bulk-Only reset.
	mov	dptr, #BAD_CBW
	movx	a, @dptr
	jz	3$
	lcall	halt_both
3$:	ret
1$:	cjne	r7, #0x01, 4$
	; FUNCTION_SUSPEND: remote wake-up doesn't exist, so there is nothing to enable.
	lcall	is_super
	jnc	5$
	lcall	is_configured
	jz	5$
	mov	a, r5
	orl	a, r3
	jnz	5$
	ret
4$:	cjne	r7, #0x00, 5$
	; U1_ENABLE and U2_ENABLE, while configured
	lcall	is_super
	jnc	5$
	lcall	is_configured
	jz	5$
	mov	r1, #0x04
	cjne	r5, #48, 6$
	sjmp	7$
6$:	mov	r1, #0x08
	cjne	r5, #49, 5$
7$:	mov	a, r1
	cpl	a
	mov	r0, a
	mov	dptr, #POWER_FEATURES
	movx	a, @dptr
	anl	a, r0
	cjne	r6, #3, 8$
	orl	a, r1
8$:	movx	@dptr, a
	ret
5$:	ljmp	stall

; Sets carry at SuperSpeed.
is_super:
	mov	dptr, #USB_SPEED
	movx	a, @dptr
	mov	c, acc.1
	ret

; --- SET_ADDRESS: the new address takes effect after the status stage, which still uses the old one.
set_address:
	mov	a, r7
	orl	a, r4
	orl	a, r3
	orl	a, r2
	jnz	5$
	mov	a, r5
	jb	acc.7, 5$
	mov	dptr, #NEW_ADDRESS
	movx	@dptr, a
	ret
5$:	ljmp	stall

get_configuration:
	cjne	r7, #0x80, 5$
	lcall	is_configured
	sjmp	one_byte
5$:	ljmp	stall
one_byte:
	mov	dptr, #EP0_REPLY
	movx	@dptr, a
	mov	r7, #1
	ljmp	reply

set_configuration:
	mov	a, r7
	orl	a, r4
	jnz	5$
	mov	a, r5
	anl	a, #0xFE
	jnz	5$
	mov	dptr, #CONFIGURATION
	mov	a, r5
	movx	@dptr, a
	mov	dptr, #ALTERNATE
	clr	a
	movx	@dptr, a
	mov	a, r5
	rr	a			; 0 or 0x80
	mov	r4, a
	mov	dptr, #USB_ADDRESS
	movx	a, @dptr
	anl	a, #0x7F
	orl	a, r4
	movx	@dptr, a
	ljmp	interface_reset
5$:	ljmp	stall

get_interface:
	cjne	r7, #0x81, 5$
	lcall	is_configured
	jz	5$
	mov	a, r3
	orl	a, r2
	jnz	5$
	mov	dptr, #ALTERNATE
	movx	a, @dptr
	sjmp	one_byte
5$:	ljmp	stall

set_interface:
	cjne	r7, #0x01, 5$
	lcall	is_configured
	jz	5$
	mov	a, r5
	anl	a, #0xFE
	orl	a, r4
	orl	a, r3
	orl	a, r2
	jnz	5$
	mov	dptr, #ALTERNATE
	mov	a, r5
	movx	@dptr, a
	ljmp	interface_reset
5$:	ljmp	stall

; The host's times for U1, U2 and isochronous delay have no effect.
set_sel:
	mov	dptr, #EP0_SETUP + 6
	movx	a, @dptr
	xrl	a, #6
	jz	set_isoch_delay
	ljmp	stall
set_isoch_delay:
	mov	a, r7
	jnz	5$
	lcall	is_super
	jnc	5$
	ret
5$:	ljmp	stall

; --- GET_MAX_LUN and the Bulk-Only reset. Both address the interface, with value 0.
class_request:
	mov	a, r5
	orl	a, r4
	orl	a, r3
	orl	a, r2
	jnz	5$
	lcall	is_configured
	jz	5$
	cjne	r7, #0xA1, 1$
	cjne	r6, #0xFE, 5$
	clr	a			; the highest LUN
	ljmp	one_byte
1$:	cjne	r7, #0x21, 5$
	cjne	r6, #0xFF, 5$
	mov	dptr, #EP0_SETUP + 6
	movx	a, @dptr
	jnz	5$
	inc	dptr
	movx	a, @dptr
	jnz	5$
	ljmp	transport_reset
5$:	ljmp	stall

; R7 bytes of the reply are in EP0_REPLY. Sends at most wLength of them.
reply:	mov	dptr, #EP0_SETUP + 7
	movx	a, @dptr
	jnz	1$
	mov	dptr, #EP0_SETUP + 6
	movx	a, @dptr
	clr	c
	subb	a, r7
	jnc	1$
	movx	a, @dptr
	mov	r7, a
1$:	mov	dptr, #EP0_LEFT
	mov	a, r7
	movx	@dptr, a
	ret

; --- Sends a read's next packet. A reply shorter than wLength ends with a short packet, which may be empty.
in_wanted:
	mov	r7, #64
	mov	dptr, #EP0_LEFT
	movx	a, @dptr
	mov	r6, a
	lcall	is_super
	jc	1$			; a packet has 512 bytes, so everything fits
	mov	a, r6
	clr	c
	subb	a, r7
	jc	1$
	mov	a, r7
	sjmp	2$
1$:	mov	a, r6
2$:	mov	r7, a
	mov	dptr, #EP0_LENGTH
	clr	a
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #EP0_LEFT
	mov	a, r6
	clr	c
	subb	a, r7
	movx	@dptr, a
	mov	dptr, #EP0_AT
	movx	a, @dptr
	mov	r5, a
	add	a, r7
	movx	@dptr, a
	mov	r6, #0
3$:	mov	a, r6
	xrl	a, r7
	jz	4$
	mov	dph, #>EP0_REPLY
	mov	dpl, r5
	movx	a, @dptr
	mov	dph, #>EP0_BUFFER
	mov	dpl, r6
	movx	@dptr, a
	inc	r5
	inc	r6
	sjmp	3$
4$:	mov	dptr, #EP0_COMMAND
	mov	a, #4
	movx	@dptr, a
5$:	movx	a, @dptr
	jb	acc.2, 5$
	mov	dptr, #EP0_EVENTS
	mov	a, #0x08
	movx	@dptr, a
	ret

; --- The host offers an OUT packet: a write's data, or the empty one that ends a read.
out_offered:
	mov	a, #0x02
	movx	@dptr, a
	mov	dptr, #EP0_COMMAND
	movx	@dptr, a
	ret
; The data is in EP0_BUFFER. Only SET_SEL has data, and it is ignored.
out_taken:
	mov	a, #0x04
	movx	@dptr, a
	ret

; --- The status stage of a write, or of a request without data.
status_stage:
	mov	dptr, #EP0_COMMAND
	mov	a, #8
	movx	@dptr, a
	mov	dptr, #EP0_EVENTS
	mov	a, #0x10
	movx	@dptr, a
	mov	dptr, #NEW_ADDRESS
	movx	a, @dptr
	jb	acc.7, 1$
	mov	r7, a
	mov	a, #0xFF
	movx	@dptr, a
	mov	dptr, #USB_ADDRESS
	movx	a, @dptr
	anl	a, #0x80
	orl	a, r7
	movx	@dptr, a
1$:	ret
