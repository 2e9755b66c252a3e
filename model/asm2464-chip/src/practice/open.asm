; The practice image's open sibling. To a host that flashes it, it behaves like tinygrad's open firmware, and does
; nothing else.
;
; It answers the standard requests, E4 and E5 (XDATA), and F0 (one TLP), and F4 restarts it. See practice.md for its
; purpose. All work is done in one loop with interrupts off: check for a reset, check for an event of the control endpoint, repeat.
	.module	open
	.include "map.inc"
	.area	OPEN (ABS,CODE)

REPLY_HIGH	= 0x20		; IDATA: number of bytes of the reply in EP0_BUFFER, big-endian
REPLY_LOW	= 0x21
WANTS_TLP	= 0x22		; IDATA: 1 while an F0 waits for its data
TLP_HEADER	= 0xB210	; format and type; the byte enables in 0xB217
TLP_ENABLES	= 0xB217
TLP_ADDRESS	= 0xB218	; two dwords, then the data, each big-endian: low, high, data
TLP_DATA	= 0xB220
TLP_COMPLETION	= 0xB22A
TLP_FIRE	= 0xB254
TLP_STATUS	= 0xB296	; write 1 clears. Bit 1: the completion arrived
TLP_LEN		= 12
SUPER_SPEED	= 0xCC30	; bit 0 lets the link train at SuperSpeed; bit 0 of the next register resets the CPU

	.org	0x0000
	ljmp	start

	.org	0x0030
start:	mov	sp, #0x40
	mov	BANK, #0
	mov	XPAGE, #0
	.include "link.asm"
	lcall	forget
	mov	dptr, #USB_CONTROL
	movx	a, @dptr
	clr	acc.1
	movx	@dptr, a

; Writes the active bits back, which clears them.
loop:	mov	r6, #0
	mov	dptr, #LINK_EVENTS
	movx	a, @dptr
	jz	1$
	movx	@dptr, a
	anl	a, #0x01		; hot reset
	mov	r6, a
1$:	mov	dptr, #BUS_EVENTS
	movx	a, @dptr
	jz	2$
	movx	@dptr, a
2$:	inc	dptr
	movx	a, @dptr
	jz	3$
	movx	@dptr, a
	anl	a, #0x80		; USB 2 reset
	orl	a, r6
	mov	r6, a
3$:	inc	dptr
	movx	a, @dptr
	jz	4$
	movx	@dptr, a
4$:	mov	a, r6
	jz	5$
	lcall	forget
5$:	mov	dptr, #BULK_EVENTS	; drops a packet that the host has put into the flash buffer
	movx	a, @dptr
	jz	6$
	movx	@dptr, a
6$:	mov	dptr, #USB_EVENTS
	movx	a, @dptr
	jnb	acc.1, loop
	lcall	ep0_event
	sjmp	loop

; The state after a reset: no address, no configuration.
forget:	clr	a
	mov	WANTS_TLP, a
	mov	dptr, #USB_ADDRESS
	movx	@dptr, a
	mov	dptr, #CONFIGURATION
	movx	@dptr, a
	mov	dptr, #ALTERNATE
	movx	@dptr, a
	mov	dptr, #NEW_ADDRESS
	dec	a
	movx	@dptr, a
; Clears all halts and armed packets.
endpoints:
	mov	dptr, #BULK_HALTS
	movx	a, @dptr
	anl	a, #0x7E
	movx	@dptr, a
	mov	dptr, #BULK_ARM
	mov	a, #0x09
	movx	@dptr, a
	ret

; --- The control endpoint. ep0.asm of the practice image explains the stages.
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

; R7 = bmRequestType, R6 = bRequest, R4:R5 = wValue, R2:R3 = wIndex.
setup_came:
	mov	a, #0x01
	movx	@dptr, a
	clr	a
	mov	REPLY_HIGH, a
	mov	REPLY_LOW, a
	mov	WANTS_TLP, a
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
	jz	standard
	xrl	a, #0x40
	jz	vendor
stall:	mov	dptr, #EP0_COMMAND
	mov	a, #1
	movx	@dptr, a
	ret

vendor:	cjne	r7, #0xC0, 1$
	cjne	r6, #0xE4, 2$
	ljmp	xdata_read
2$:	cjne	r6, #0xF0, stall
	ljmp	tlp_completion
1$:	cjne	r6, #0xE5, 3$
	ljmp	xdata_write
3$:	cjne	r6, #0xF4, 4$
	ljmp	restart
4$:	cjne	r6, #0xF0, stall
	ljmp	tlp_comes

standard:
	cjne	r6, #0, 1$
	ljmp	get_status
1$:	cjne	r6, #1, 2$
	ljmp	change_feature
2$:	cjne	r6, #3, 3$
	ljmp	change_feature
3$:	cjne	r6, #5, 4$
	mov	a, r5
	mov	dptr, #NEW_ADDRESS
	movx	@dptr, a
	ret
4$:	cjne	r6, #6, 5$
	ljmp	get_descriptor
5$:	cjne	r6, #8, 6$
	mov	dptr, #CONFIGURATION
	sjmp	one_byte
6$:	cjne	r6, #9, 7$
	ljmp	set_configuration
7$:	cjne	r6, #10, 8$
	mov	dptr, #ALTERNATE
	sjmp	one_byte
8$:	cjne	r6, #11, 9$
	ljmp	set_interface
9$:	cjne	r6, #48, 10$		; SET_SEL and SET_ISOCH_DELAY have no effect
	ret
10$:	cjne	r6, #49, 11$
	ret
11$:	ljmp	stall

; Reads the byte at DPTR.
one_byte:
	movx	a, @dptr
	mov	dptr, #EP0_BUFFER
	movx	@dptr, a
	mov	r1, #1
	ljmp	reply

get_status:
	clr	a
	cjne	r7, #0x80, 1$
	mov	a, #0x01		; self-powered
	sjmp	3$
1$:	cjne	r7, #0x82, 3$
	lcall	find_halt
	jc	4$
	movx	a, @dptr
	anl	a, r1
	jz	3$
	mov	a, #1
3$:	mov	dptr, #EP0_BUFFER
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	mov	r1, #2
	ljmp	reply
4$:	ljmp	stall

; Finds the halt of endpoint R3: register DPTR, bit R1; none for the control endpoint. Carry: no such endpoint.
find_halt:
	mov	dptr, #BULK_HALTS
	clr	c
	mov	r1, #0
	mov	a, r3
	anl	a, #0x7F
	jz	1$
	mov	r1, #0x01
	cjne	r3, #0x81, 2$
	clr	c
	ret
2$:	mov	r1, #0x80
	cjne	r3, #0x02, 3$
1$:	clr	c
	ret
3$:	setb	c
	ret

change_feature:
	cjne	r7, #0x02, 2$
	lcall	find_halt
	jc	3$
	mov	a, r1
	cpl	a
	mov	r0, a
	movx	a, @dptr
	anl	a, r0
	cjne	r6, #3, 1$
	orl	a, r1
1$:	movx	@dptr, a
2$:	ret				; U1, U2 and function suspend
3$:	ljmp	stall

set_configuration:
	mov	a, r5
	anl	a, #0xFE
	jnz	1$
	mov	a, r5
	mov	dptr, #CONFIGURATION
	movx	@dptr, a
	rr	a			; 0 or 0x80
	mov	r4, a
	clr	a
	mov	dptr, #ALTERNATE
	movx	@dptr, a
	mov	dptr, #USB_ADDRESS
	movx	a, @dptr
	anl	a, #0x7F
	orl	a, r4
	movx	@dptr, a
	ljmp	endpoints
1$:	ljmp	stall

set_interface:
	mov	a, r5
	anl	a, #0xFE
	orl	a, r3
	jnz	1$
	mov	a, r5
	mov	dptr, #ALTERNATE
	movx	@dptr, a
	ljmp	endpoints
1$:	ljmp	stall

	.org	0x0200
version:
	.db	0x26, 0x11, 0x22, 0x00, 0x00, 0x01

; --- E4: reads wLength bytes from wValue in the page of wIndex's high byte, at most one packet.
xdata_read:
	mov	dptr, #EP0_SETUP + 6
	movx	a, @dptr
	mov	REPLY_LOW, a
	inc	dptr
	movx	a, @dptr
	mov	REPLY_HIGH, a
	lcall	is_super
	jc	1$
	mov	a, REPLY_HIGH
	jnz	2$
	mov	a, REPLY_LOW
	add	a, #256 - 65
	jnc	3$
2$:	mov	REPLY_HIGH, #0		; 64 bytes
	mov	REPLY_LOW, #64
	sjmp	3$
1$:	mov	a, REPLY_HIGH
	anl	a, #0xFE
	jz	3$
	mov	REPLY_HIGH, #2		; 512 bytes
	mov	REPLY_LOW, #0
3$:	mov	r6, REPLY_LOW		; R7:R6: number of bytes left
	mov	r7, REPLY_HIGH
	mov	r0, #<EP0_BUFFER
	mov	r1, #>EP0_BUFFER
4$:	mov	a, r6
	orl	a, r7
	jz	6$
	mov	dpl, r5
	mov	dph, r4
	mov	XPAGE, r2
	movx	a, @dptr
	mov	XPAGE, #0
	inc	dptr
	mov	r5, dpl
	mov	r4, dph
	mov	dpl, r0
	mov	dph, r1
	movx	@dptr, a
	inc	dptr
	mov	r0, dpl
	mov	r1, dph
	mov	a, r6
	dec	r6
	jnz	4$
	dec	r7
	sjmp	4$
6$:	ret

; --- E5: writes the value in wIndex's low byte to wValue, in the page of its high byte.
xdata_write:
	mov	dpl, r5
	mov	dph, r4
	mov	a, r3
	mov	XPAGE, r2
	movx	@dptr, a
	mov	XPAGE, #0
	ret

; --- F4 with wValue 1: lets the link train at SuperSpeed again, and resets the CPU. The host gets no answer.
restart:
	cjne	r4, #0, 2$
	cjne	r5, #1, 2$
	mov	dptr, #SUPER_SPEED
	mov	a, r5
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
1$:	sjmp	1$
2$:	ljmp	stall

; --- F0: wValue has format and byte enables; address and data follow. wIndex 0 is one TLP. Streams are not supported.
tlp_comes:
	mov	a, r3
	jnz	1$
	mov	dptr, #TLP_HEADER
	mov	a, r5
	movx	@dptr, a
	mov	dptr, #TLP_ENABLES
	mov	a, r4
	movx	@dptr, a
	mov	WANTS_TLP, #1
	ret
1$:	ljmp	stall

; Converts three dwords from little-endian to big-endian: byte n of dword k becomes byte 3 - n.
tlp_send:
	mov	r7, #0
1$:	mov	dptr, #EP0_BUFFER
	mov	dpl, r7
	movx	a, @dptr
	mov	r6, a
	mov	a, r7
	xrl	a, #3
	add	a, #<TLP_ADDRESS
	mov	dpl, a
	mov	dph, #>TLP_ADDRESS
	mov	a, r6
	movx	@dptr, a
	inc	r7
	cjne	r7, #TLP_LEN, 1$
	mov	dptr, #TLP_STATUS
	mov	a, #0x07
	movx	@dptr, a
	mov	dptr, #TLP_FIRE
	mov	a, #0x0F
	movx	@dptr, a
	ret

; F0: reads data, the completion's two header bytes, 0, and a result: 0 done, FF if no completion arrived.
tlp_completion:
	mov	r7, #0
1$:	mov	a, r7
	xrl	a, #3
	add	a, #<TLP_DATA
	mov	dpl, a
	mov	dph, #>TLP_DATA
	movx	a, @dptr
	lcall	put
	cjne	r7, #4, 1$
	mov	dptr, #TLP_COMPLETION
	movx	a, @dptr
	lcall	put
	mov	dptr, #TLP_COMPLETION + 1
	movx	a, @dptr
	lcall	put
	clr	a
	lcall	put
	mov	dptr, #TLP_STATUS
	movx	a, @dptr
	mov	c, acc.1
	clr	a
	jc	2$
	cpl	a
2$:	lcall	put
	mov	r1, #8
	ljmp	reply
; Writes A to byte R7 of the reply, and increments R7.
put:	mov	dph, #>EP0_BUFFER
	mov	dpl, r7
	movx	@dptr, a
	inc	r7
	ret

; Sets carry at SuperSpeed.
is_super:
	mov	dptr, #USB_SPEED
	movx	a, @dptr
	mov	c, acc.1
	ret

; R1 bytes of the reply are in EP0_BUFFER. Sends at most wLength of them.
reply:	mov	dptr, #EP0_SETUP + 7
	movx	a, @dptr
	jnz	1$
	mov	dptr, #EP0_SETUP + 6
	movx	a, @dptr
	clr	c
	subb	a, r1
	jnc	1$
	movx	a, @dptr
	mov	r1, a
1$:	mov	REPLY_LOW, r1
	mov	REPLY_HIGH, #0
	ret

; --- GET_DESCRIPTOR: type R4, index R5. A table begins with its length.
get_descriptor:
	cjne	r4, #1, 1$
	mov	dptr, #device_super
	mov	r0, #<device_high
	mov	r1, #>device_high
	sjmp	by_speed
1$:	cjne	r4, #2, 2$
	mov	dptr, #configuration_super
	mov	r0, #<configuration_high
	mov	r1, #>configuration_high
	sjmp	by_speed
2$:	cjne	r4, #3, 3$
	ljmp	string
3$:	cjne	r4, #6, 4$
	mov	dptr, #none
	mov	r0, #<qualifier
	mov	r1, #>qualifier
	sjmp	by_speed
4$:	cjne	r4, #15, 5$
	mov	dptr, #bos
	sjmp	table
5$:	ljmp	stall

; Selects the table at DPTR at SuperSpeed, otherwise the one at R1:R0.
by_speed:
	push	dpl
	push	dph
	lcall	is_super
	pop	dph
	pop	dpl
	jc	table
	mov	dpl, r0
	mov	dph, r1
; Makes the table at DPTR the reply.
table:	clr	a
	movc	a, @a+dptr
	jz	2$
	mov	r1, a
	mov	r6, a
	mov	r7, #0
1$:	inc	dptr
	clr	a
	movc	a, @a+dptr
	push	dpl
	push	dph
	lcall	put
	pop	dph
	pop	dpl
	djnz	r6, 1$
	ljmp	reply
2$:	ljmp	stall

; Text R5, in UTF-16.
string:	cjne	r5, #0, 1$
	mov	dptr, #languages
	sjmp	table
1$:	mov	dptr, #manufacturer
	cjne	r5, #1, 2$
	sjmp	text
2$:	mov	dptr, #product
	cjne	r5, #2, 3$
	sjmp	text
3$:	mov	dptr, #serial
	cjne	r5, #3, no_text
text:	clr	a
	movc	a, @a+dptr
	mov	r6, a
	add	a, acc
	add	a, #2
	mov	r1, a
	mov	r7, #0
	push	dpl
	push	dph
	lcall	put			; bLength
	mov	a, #3
	lcall	put
	pop	dph
	pop	dpl
5$:	inc	dptr
	clr	a
	movc	a, @a+dptr
	push	dpl
	push	dph
	lcall	put
	clr	a
	lcall	put
	pop	dph
	pop	dpl
	djnz	r6, 5$
	ljmp	reply
no_text:
	ljmp	stall

; --- Sends a read's next packet. All replies fit in one.
in_wanted:
	mov	dptr, #EP0_LENGTH
	mov	a, REPLY_HIGH
	movx	@dptr, a
	inc	dptr
	mov	a, REPLY_LOW
	movx	@dptr, a
	mov	REPLY_HIGH, #0		; if the host wants more, an empty packet ends the read
	mov	REPLY_LOW, #0
	mov	dptr, #EP0_COMMAND
	mov	a, #4
	movx	@dptr, a
1$:	movx	a, @dptr
	jb	acc.2, 1$
	mov	dptr, #EP0_EVENTS
	mov	a, #0x08
	movx	@dptr, a
	ret

out_offered:
	mov	a, #0x02
	movx	@dptr, a
	mov	dptr, #EP0_COMMAND
	movx	@dptr, a
	ret

out_taken:
	mov	a, WANTS_TLP
	jz	1$
	mov	WANTS_TLP, #0
	lcall	tlp_send
1$:	mov	dptr, #EP0_EVENTS
	mov	a, #0x04
	movx	@dptr, a
	ret

; A new address takes effect after the status stage, which still uses the old one.
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

none:	.db	0
device_super:
	.db	18
	.db	18, 0x01, 0x20, 0x03, 0, 0, 0, 9, 0xD1, 0xAD, 0x01, 0x00, 0x01, 0x00, 1, 2, 3, 1
device_high:
	.db	18
	.db	18, 0x01, 0x10, 0x02, 0, 0, 0, 64, 0xD1, 0xAD, 0x01, 0x00, 0x01, 0x00, 1, 2, 3, 1
qualifier:
	.db	10
	.db	10, 0x06, 0x10, 0x02, 0, 0, 0, 64, 1, 0
; One interface of the vendor-specific class. Alternate 1 exists only at SuperSpeed.
configuration_super:
	.db	79
	.db	9, 0x02, 79, 0, 1, 1, 0, 0xC0, 0
	.db	9, 0x04, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0
	.db	7, 0x05, 0x81, 0x02, 0x00, 0x04, 0
	.db	6, 0x30, 15, 0, 0, 0
	.db	7, 0x05, 0x02, 0x02, 0x00, 0x04, 0
	.db	6, 0x30, 15, 0, 0, 0
	.db	9, 0x04, 0, 1, 2, 0xFF, 0xFF, 0xFF, 0
	.db	7, 0x05, 0x81, 0x02, 0x00, 0x04, 0
	.db	6, 0x30, 15, 0, 0, 0
	.db	7, 0x05, 0x02, 0x02, 0x00, 0x04, 0
	.db	6, 0x30, 15, 0, 0, 0
configuration_high:
	.db	32
	.db	9, 0x02, 32, 0, 1, 1, 0, 0xC0, 0
	.db	9, 0x04, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0
	.db	7, 0x05, 0x81, 0x02, 0x00, 0x02, 0
	.db	7, 0x05, 0x02, 0x02, 0x00, 0x02, 0
bos:	.db	22
	.db	5, 0x0F, 22, 0, 2
	.db	7, 0x10, 0x02, 0x02, 0, 0, 0
	.db	10, 0x10, 0x03, 0, 0x0E, 0, 1, 10, 0xFF, 0x07
languages:
	.db	4, 4, 0x03, 0x09, 0x04
manufacturer:
	.db	8
	.ascii	"asmpatch"
product:
	.db	15
	.ascii	"custom practice"
serial:	.db	12
	.ascii	"000000000000"
