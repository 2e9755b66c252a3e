; Bank 0: descriptors. USB 3.2, section 9.6; UAS-3, clause 5.

; --- GET_DESCRIPTOR: type R4, index R5. The tables are at the end.
get_descriptor:
	cjne	r7, #0x80, 5$
	mov	a, r4
	lcall	CASE
	.dw	device
	.db	1
	.dw	configuration
	.db	2
	.dw	string
	.db	3
	.dw	qualifier
	.db	6
	.dw	bos
	.db	15
	.dw	0x0000
	.dw	stall
5$:	ljmp	stall

bos:	mov	dptr, #bos_descriptor
	mov	r7, #bos_end - bos_descriptor
reply_table:
	cjne	r5, #0, 5$
	lcall	copy_table
	ljmp	reply
5$:	ljmp	stall

stall_3:
	ljmp	stall

; Builds the configuration descriptor and all that follows it from its list. R7: where the next byte goes.
configuration:
	cjne	r5, #0, stall_3
	mov	dptr, #configuration_list
	mov	r7, #0
next_entry:
	clr	a
	movc	a, @a+dptr
	inc	dptr
	mov	r6, a
	jz	pipe
	inc	a
	jz	configuration_ends
1$:	clr	a			; a descriptor, copied unchanged
	movc	a, @a+dptr
	inc	dptr
	lcall	emit
	djnz	r6, 1$
	sjmp	next_entry
pipe:	mov	a, #7
	lcall	emit
	mov	a, #0x05
	lcall	emit
	clr	a
	movc	a, @a+dptr		; address
	lcall	emit
	mov	a, #0x02		; bulk
	lcall	emit
	clr	a
	lcall	emit
	lcall	super_or_not
	mov	a, #0x04		; 0x400 bytes a packet
	jc	2$
	mov	a, #0x02		; 0x200
2$:	lcall	emit
	clr	a
	lcall	emit
	lcall	super_or_not
	jnc	3$
	mov	a, #6
	lcall	emit
	mov	a, #0x30
	lcall	emit
	mov	a, #1
	movc	a, @a+dptr		; burst
	lcall	emit
	mov	a, #2
	movc	a, @a+dptr		; streams
	lcall	emit
	clr	a
	lcall	emit
	clr	a
	lcall	emit
3$:	mov	a, #3
	movc	a, @a+dptr		; pipe ID
	jz	4$
	mov	r6, a
	mov	a, #4
	lcall	emit
	mov	a, #0x24
	lcall	emit
	mov	a, r6
	lcall	emit
	clr	a
	lcall	emit
4$:	inc	dptr
	inc	dptr
	inc	dptr
	inc	dptr
	sjmp	next_entry
configuration_ends:
	mov	dptr, #EP0_REPLY + 2	; wTotalLength
	mov	a, r7
	movx	@dptr, a
	ljmp	reply
; Appends A to the reply. Keeps DPTR.
emit:	push	dpl
	push	dph
	mov	dph, #>EP0_REPLY
	mov	dpl, r7
	movx	@dptr, a
	inc	r7
	pop	dph
	pop	dpl
	ret

; As is_super, but keeps DPTR.
super_or_not:
	push	dpl
	push	dph
	lcall	is_super
	pop	dph
	pop	dpl
	ret

; The device qualifier: the same fields, for full speed with its smaller packets.
qualifier:
	lcall	is_super
	jc	5$
	mov	dptr, #qualifier_descriptor
	mov	r7, #10
	ljmp	reply_table
5$:	ljmp	stall

device:	cjne	r5, #0, 5$
	mov	dptr, #device_descriptor
	mov	r7, #18
	lcall	copy_table
	lcall	is_super
	jc	1$
	mov	dptr, #EP0_REPLY + 2
	mov	a, #0x10		; bcdUSB 2.10
	movx	@dptr, a
	inc	dptr
	mov	a, #0x02
	movx	@dptr, a
	mov	dptr, #EP0_REPLY + 7
	mov	a, #64			; packet size; at SuperSpeed the field is an exponent, 9
	movx	@dptr, a
	; idVendor, idProduct, bcdDevice: six bytes of the configuration block
1$:	mov	r6, #8
	mov	r1, #0x74
2$:	lcall	CONFIG_BYTE
	mov	dph, #>EP0_REPLY
	mov	dpl, r6
	movx	@dptr, a
	inc	r1
	inc	r6
	cjne	r6, #14, 2$
	mov	r7, #18
	ljmp	reply
5$:	ljmp	stall

; Copies R7 bytes of code at DPTR to EP0_REPLY.
copy_table:
	mov	r1, #0
1$:	mov	a, r1
	movc	a, @a+dptr
	push	dpl
	push	dph
	mov	dph, #>EP0_REPLY
	mov	dpl, r1
	movx	@dptr, a
	pop	dph
	pop	dpl
	inc	r1
	mov	a, r1
	xrl	a, r7
	jnz	1$
	ret

; --- Strings: the languages, and three texts of the configuration block in UTF-16.
string:	cjne	r5, #0, 1$
	mov	dptr, #languages
	mov	r7, #4
	lcall	copy_table
	ljmp	reply
1$:	mov	r1, #0x04
	mov	r6, #20
	cjne	r5, #1, 2$
	sjmp	4$
2$:	mov	r1, #0x18
	mov	r6, #36
	cjne	r5, #2, 3$
	sjmp	4$
3$:	mov	r1, #0x44
	mov	r6, #32
	cjne	r5, #3, 5$
4$:	mov	r7, #2
6$:	lcall	CONFIG_BYTE
	mov	r5, a
	inc	a
	jz	7$			; FF ends the text
	mov	a, r5
	jz	7$
	mov	dph, #>EP0_REPLY
	mov	dpl, r7
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	inc	r7
	inc	r7
	inc	r1
	djnz	r6, 6$
7$:	mov	dptr, #EP0_REPLY
	mov	a, r7
	movx	@dptr, a
	inc	dptr
	mov	a, #3
	movx	@dptr, a
	ljmp	reply
5$:	ljmp	stall

device_descriptor:
	.db	18, 0x01, 0x20, 0x03	; USB 3.2
	.db	0, 0, 0			; class: in the interface
	.db	9			; packets of 2^9 bytes on the control endpoint
	.db	0, 0, 0, 0, 0, 0	; idVendor, idProduct, bcdDevice
	.db	2, 3, 1			; strings: manufacturer, product, serial number
	.db	1			; configurations

qualifier_descriptor:
	.db	10, 0x06, 0x10, 0x02, 0, 0, 0, 64, 1, 0

languages:
	.db	4, 0x03, 0x09, 0x04	; US English

bos_descriptor:
	.db	5, 0x0F
	.dw	0x1600			; total length 22
	.db	2			; capabilities
	; USB 2.0 extension: link power management
	.db	7, 0x10, 0x02, 0x02, 0, 0, 0
	; SuperSpeed: full, high and SuperSpeed; all functions from full speed on; U1 within 10 us, U2 within 2,047 us
	.db	10, 0x10, 0x03, 0, 0x0E, 0, 1, 10, 0xFF, 0x07
bos_end:

; One configuration, self-powered. Interface 0, alternate 0: mass storage, SCSI, Bulk-Only; alternate 1: UAS. The code
; adds what differs between speeds: packet sizes and SuperSpeed's companion descriptors.
;
; An entry is a descriptor's length and the descriptor, or 0 and four bytes for a bulk pipe: the endpoint's address,
; packets in a burst - 1, the exponent of its streams, its UAS pipe ID (0 over Bulk-Only). FF ends the list.
configuration_list:
	.db	9, 9, 0x02, 0, 0, 1, 1, 0, 0xC0, 0
	.db	9, 9, 0x04, 0, 0, 2, 0x08, 0x06, 0x50, 0
	.db	0, 0x81, 15, 0, 0
	.db	0, 0x02, 15, 0, 0
	.db	9, 9, 0x04, 0, 1, 4, 0x08, 0x06, 0x62, 0
	.db	0, 0x04, 0, 0, 1	; commands
	.db	0, 0x83, 0, 5, 2	; status, with 2^5 streams
	.db	0, 0x81, 15, 5, 3	; data to the host
	.db	0, 0x02, 15, 5, 4	; data from the host
	.db	0xFF
