; The SCSI commands with data. SPC-4 and SBC-3. Replies are built in the data buffer.

; --- INQUIRY: the standard data, or a page of vital product data
	.org	INQUIRY
inquiry:
	lcall	DRIVE_START		; a host sends this command first
	mov	r5, #1
	lcall	cdb_byte
	mov	r7, a
	mov	r5, #2
	lcall	cdb_byte
	mov	r6, a
	mov	a, r7
	jb	acc.0, vital
	mov	a, r6
	jz	standard
	ljmp	invalid_field
standard:
	lcall	peripheral
	movx	@dptr, a
	inc	dptr
	; Removable without a medium, as long as there is no drive and no GPU runtime reports one.
	push	dpl
	push	dph
	mov	dptr, #DRIVE_STARTED
	movx	a, @dptr
	clr	c
	jnz	1$
	lcall	NVME_READY
1$:	pop	dph
	pop	dpl
	clr	a
	mov	acc.7, c
	movx	@dptr, a
	inc	dptr
	mov	a, #0x06		; SPC-4
	movx	@dptr, a
	inc	dptr
	mov	a, #0x02		; this format
	movx	@dptr, a
	inc	dptr
	mov	a, #31			; bytes that follow this one
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	inc	dptr
	push	dpl
	push	dph
	mov	dptr, #USB_MODE
	movx	a, @dptr
	pop	dph
	pop	dpl
	rl	a
	anl	a, #0x02		; over UAS: command queuing
	movx	@dptr, a
	mov	r7, #8
	lcall	names
	; The revision: bcdDevice's four digits
	mov	r1, #0x79
	lcall	CONFIG_BYTE
	lcall	digits
	mov	r1, #0x78
	lcall	CONFIG_BYTE
	lcall	digits
	ljmp	inquiry_ends

; From here on R7 is the position of the next byte in the data buffer.
vital:	lcall	peripheral
	movx	@dptr, a
	inc	dptr
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	mov	r7, #4
	mov	a, r6
	jz	pages
	cjne	a, #0x80, 1$
	lcall	serial
	sjmp	page_ends
1$:	cjne	a, #0x83, 2$
	; One designator: ASCII, of the logical unit, begins with the T10 vendor
	mov	a, #0x02
	lcall	put
	mov	a, #0x01
	lcall	put
	clr	a
	lcall	put
	inc	r7			; its length, set below
	lcall	names
	lcall	serial
	mov	dptr, #DATA_BUFFER + 7
	mov	a, r7
	add	a, #-8
	movx	@dptr, a
	sjmp	page_ends
2$:	mov	dptr, #DRIVE_STARTED	; both pages need a drive
	movx	a, @dptr
	jz	3$
	mov	r5, #60
	cjne	r6, #0xB0, 4$
5$:	clr	a
	lcall	put
	djnz	r5, 5$
	mov	dptr, #DATA_BUFFER + 7	; optimal granularity: one block
	inc	a
	movx	@dptr, a
	mov	dptr, #DATA_BUFFER + 10	; the longest transfer
	mov	a, #>MOST_BLOCKS
	movx	@dptr, a
	sjmp	page_ends
4$:	cjne	r6, #0xB1, 3$
6$:	clr	a
	lcall	put
	djnz	r5, 6$
	mov	dptr, #DATA_BUFFER + 5	; non-rotating
	inc	a
	movx	@dptr, a
	sjmp	page_ends
3$:	ljmp	invalid_field
pages:	clr	a
	lcall	put
	mov	a, #0x80
	lcall	put
	mov	a, #0x83
	lcall	put
	mov	dptr, #DRIVE_STARTED
	movx	a, @dptr
	jz	page_ends
	mov	a, #0xB0
	lcall	put
	mov	a, #0xB1
	lcall	put
page_ends:
	mov	dptr, #DATA_BUFFER + 3
	mov	a, r7
	add	a, #-4
	movx	@dptr, a
inquiry_ends:
	; Sends at most the length in CDB bytes 3 and 4
	mov	r5, #3
	lcall	cdb_byte
	mov	r4, a
	mov	r5, #4
	lcall	cdb_byte
	mov	r5, a
	ljmp	answer_from_buffer

; DPTR = the data buffer, A = the peripheral's qualifier and type: a disk, or none for another LUN.
peripheral:
	mov	dptr, #LUN
	movx	a, @dptr
	mov	dptr, #DATA_BUFFER
	jz	1$
	mov	a, #0x7F
1$:	ret

; Appends A to the data buffer.
put:	mov	dph, #>DATA_BUFFER
	mov	dpl, r7
	movx	@dptr, a
	inc	r7
	ret

; Appends the T10 names, padded with spaces.
names:	mov	r1, #0x3C
	mov	r6, #8
	lcall	padded
	mov	r1, #0x64
	mov	r6, #16
padded:	lcall	CONFIG_BYTE
	mov	r5, a
	add	a, #-0x20		; printable: 0x20 to 0x7E
	jnc	1$
	add	a, #-0x5F
	jc	1$
	mov	a, r5
	sjmp	2$
1$:	mov	a, #0x20
2$:	lcall	put
	inc	r1
	djnz	r6, padded
	ret

; Appends the serial number.
serial:	mov	r1, #0x04
	mov	r6, #20
1$:	lcall	CONFIG_BYTE
	cjne	a, #0xFF, 2$
	ret
2$:	lcall	put
	inc	r1
	djnz	r6, 1$
	ret

; Appends A as two hexadecimal digits.
digits:	mov	r5, a
	swap	a
	lcall	digit
	mov	a, r5
digit:	anl	a, #0x0F
	add	a, #0x90
	da	a
	addc	a, #0x40
	da	a
	sjmp	put

; --- REQUEST SENSE: returns 18 bytes in fixed format and clears the sense data
	.org	REQUEST_SENSE
request_sense:
	mov	r7, #0
1$:	mov	a, r7
	add	a, #<SENSE
	mov	dpl, a
	mov	dph, #>SENSE
	movx	a, @dptr
	lcall	put
	cjne	r7, #18, 1$
	; If no command has set sense data, its fixed bytes are still missing.
	mov	dptr, #DATA_BUFFER
	mov	a, #0x70
	movx	@dptr, a
	mov	dptr, #DATA_BUFFER + 7
	mov	a, #10
	movx	@dptr, a
	clr	a
	mov	dptr, #SENSE_KEY
	movx	@dptr, a
	mov	dptr, #SENSE_ASC
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	mov	r5, #4
	lcall	cdb_byte
	mov	r5, a
	mov	r4, #0
	sjmp	answer_from_buffer

; Sends the R7 bytes in the data buffer to the host, at most its allocation length R4:R5.
answer_from_buffer:
	mov	a, r4
	jnz	1$
	mov	a, r5
	clr	c
	subb	a, r7
	jnc	1$
	mov	a, r5
	mov	r7, a
1$:	clr	a
	mov	r6, a
	mov	r5, a
	mov	r4, a
	mov	r0, #LENGTH
	lcall	STORE_DWORD
	lcall	host_length
	mov	dptr, #IN_LENGTH
	clr	a
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	mov	r7, #0			; from the data buffer
	ljmp	BEGIN_REPLY

; --- MODE SENSE(6) and (10): the caching page with write-through, or only a header
	.org	MODE_SENSE
mode_sense:
	mov	r5, #2
	lcall	cdb_byte
	anl	a, #0x3F
	mov	r6, a
	mov	r7, #0
	mov	dptr, #OPCODE
	movx	a, @dptr
	mov	r4, #4			; the header's bytes
	jnb	acc.6, 1$
	mov	r4, #8
1$:	clr	a
	lcall	put
	mov	a, r7
	xrl	a, r4
	jnz	1$
	mov	a, r6
	jz	3$
	cjne	a, #0x08, 2$
	sjmp	4$
2$:	cjne	a, #0x3F, 5$
4$:	mov	a, #0x08
	lcall	put
	mov	a, #18			; bytes that follow this one
	lcall	put
	mov	r6, #18
6$:	clr	a
	lcall	put
	djnz	r6, 6$
	; The header's first field counts the bytes behind it, in one byte or two.
3$:	mov	dptr, #DATA_BUFFER
	mov	a, r7
	dec	a
	cjne	r4, #8, 7$
	inc	dptr
	dec	a
7$:	movx	@dptr, a
	cjne	r4, #8, 8$
	mov	r5, #7
	lcall	cdb_byte
	mov	r4, a
	mov	r5, #8
	lcall	cdb_byte
	mov	r5, a
	sjmp	9$
8$:	mov	r5, #4
	lcall	cdb_byte
	mov	r5, a
	mov	r4, #0
9$:	ljmp	answer_from_buffer
5$:	ljmp	invalid_field

; --- REPORT LUNS: one LUN, 0
	.org	REPORT_LUNS
report_luns:
	mov	r7, #0
1$:	clr	a
	lcall	put
	cjne	r7, #16, 1$
	mov	dptr, #DATA_BUFFER + 3
	mov	a, #8			; bytes of the list
	movx	@dptr, a
	; The allocation length is a dword. Uses its low word, unless the high word is not 0.
	mov	r5, #6
	lcall	cdb_byte
	mov	r6, a
	mov	r5, #7
	lcall	cdb_byte
	orl	a, r6
	mov	r4, a
	mov	r5, #8
	lcall	cdb_byte
	orl	a, r4
	mov	r4, a
	mov	r5, #9
	lcall	cdb_byte
	mov	r5, a
	ljmp	answer_from_buffer

; --- READ CAPACITY(10) and (16) of the drive
	.org	READ_CAPACITY
read_capacity:
	; IO_END = the last block; all ones without blocks.
	mov	dpl, #0xFF
	setb	c
	mov	r6, #8
1$:	mov	dph, #>DRIVE_BLOCKS
	movx	a, @dptr
	subb	a, #0
	mov	dph, #>IO_END
	movx	@dptr, a
	dec	dpl
	djnz	r6, 1$
	mov	r7, #0
	mov	dptr, #OPCODE
	movx	a, @dptr
	cjne	a, #0x25, 4$
	; Returns four bytes, all ones if four are not enough
	mov	dptr, #IO_END
	mov	r6, #4
	clr	a
	mov	r5, a
2$:	movx	a, @dptr
	orl	a, r5
	mov	r5, a
	inc	dptr
	djnz	r6, 2$
	mov	a, r5
	add	a, #0xFF
	subb	a, acc			; FF unless it is 0
	mov	r5, a
	mov	r4, #<IO_END + 4
	lcall	put_last
	mov	r4, #0xFF		; no limit: send all of it
	sjmp	3$
4$:	mov	r5, #1
	lcall	cdb_byte
	anl	a, #0x1F
	cjne	a, #0x10, 5$		; the service action
	mov	r5, #0
	mov	r4, #<IO_END
	lcall	put_last
6$:	clr	a
	lcall	put
	cjne	r7, #32, 6$
	mov	r5, #10
	lcall	cdb_byte
	mov	r6, a
	mov	r5, #11
	lcall	cdb_byte
	orl	a, r6
	mov	r6, a
	mov	r5, #12
	lcall	cdb_byte
	orl	a, r6
	mov	r4, a
	mov	r5, #13
	lcall	cdb_byte
	mov	r5, a
3$:	ljmp	answer_from_buffer
5$:	ljmp	invalid_field

; Appends IO_END from its byte R4 on, each byte or-ed with R5, and 512 as the block length.
put_last:
	mov	dph, #>IO_END
	mov	dpl, r4
	movx	a, @dptr
	orl	a, r5
	lcall	put
	inc	r4
	cjne	r4, #0, put_last
	clr	a
	lcall	put
	clr	a
	lcall	put
	mov	a, #0x02
	lcall	put
	clr	a
	ljmp	put
