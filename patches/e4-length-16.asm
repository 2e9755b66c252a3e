; E4 with a 16-bit length: CDB byte 5 is the high byte, byte 1 the low byte. docs/lab/e4-length-16.md has the reasons
; and the evidence for each claim below.
;
; Up to 255 bytes go as E4 always sends them: all in the data buffer, R7 = 1, one arming. More bytes go in packets, as
; the firmware sends every long reply: R7 = 8, and an interrupt for each sent packet, which copies and arms the next.
; Each packet is read when it is sent.
;
; Scratch: A, B, DPTR, PSW's flags, R0 to R7, SFR 0x93, IDATA 0x3B to 0x3F. The interrupt for a sent packet saves and
; restores IDATA 0x3B to 0x3F.
; State between packets: only the firmware's own variables for a long reply, 0x0AF9 to 0x0AFD.
	.module	e4_length_16

; The firmware's variables and routines. They have the same addresses in 240417 and in the practice image.
CDB_POINTER	= 0x0007	; XDATA: generic pointer to the command's context, which is in XDATA
CDB_1		= 0x10		; CDB byte 1 is at the pointer + 0x10
PAGE_FLAG	= 0x0215	; XDATA: 1 while E4 reads the other page
KIND		= 0x0AF9	; XDATA: where a long reply comes from: 0 to 2 are the firmware's own kinds
PACKET		= 0x0AFA	; XDATA: word, big-endian: bytes of a full packet, 0x40, 0x200 or 0x400
SOURCE		= 0x0AFC	; XDATA: word, big-endian: position in a long reply
USB_MODE	= 0x9000	; XDATA: bit 0 is set over UAS
IN_LENGTH	= 0x9007	; XDATA: word, big-endian
DATA_BUFFER	= 0x8000	; XDATA: data-in is sent from here
XPAGE		= 0x93		; SFR: the page that MOVX reaches
LENGTH		= 0x09		; IDATA: dword, big-endian: bytes left to send
HOST_LENGTH	= 0x6B		; IDATA: dword, big-endian
WAKE		= 0x04CB	; R7 = 1: makes the link leave its idle states
LOAD_POINTER	= 0x0DDD	; R3:R2:R1 = the pointer at XDATA @DPTR
BEGIN_REPLY	= 0x425F	; kind R7: sets up KIND, PACKET, SOURCE, LENGTH and the residue; R7 = 8
NEXT_PACKET	= 0x4013	; a packet was sent. R7 = 1: the next is copied and armed; 0: none is left
SEND_IN		= 0x5216	; arms the lesser of LENGTH and PACKET
SET_SENSE	= 0x523C	; sense key R7, additional code R5, qualifier R3

MOST		= 0x1000	; maximum bytes of one command
E4_KIND		= 3		; KIND of a long E4 is this + its page. SOURCE is then the next address

; IDATA. LEN and TO share two bytes.
PAGE		= 0x3B
LEN_HIGH	= 0x3C
LEN_LOW		= 0x3D
TO_HIGH		= 0x3C
TO_LOW		= 0x3D
FROM_HIGH	= 0x3E
FROM_LOW	= 0x3F

; On entry: R7 = CDB byte 2, 0x50 or 0x51, already checked.
	.area	HANDLER (ABS,CODE)
	.org	0xC9A8
	ljmp	e4_length_16

; Replaces LCALL NEXT_PACKET. Nothing else calls NEXT_PACKET.
	.area	PACKET_OUT (ABS,CODE)
	.org	0x4D4E
	lcall	packet_out

; This code is in the common area, because the interrupt may find either bank selected.
	.area	CAVE (ABS,CODE)
	.org	0x6800
; Returns R7 = 1: data in; 8: data in packets; or 5: answer, with sense 5/24/00.
e4_length_16:
	mov	a, r7
	anl	a, #1
	mov	PAGE, a
	mov	dptr, #CDB_POINTER
	lcall	LOAD_POINTER
	mov	a, r1
	add	a, #CDB_1
	mov	dpl, a
	clr	a
	addc	a, r2
	mov	dph, a
	movx	a, @dptr
	mov	LEN_LOW, a
	inc	dptr
	inc	dptr
	movx	a, @dptr
	mov	FROM_HIGH, a
	inc	dptr
	movx	a, @dptr
	mov	FROM_LOW, a
	inc	dptr
	movx	a, @dptr
	mov	LEN_HIGH, a
	; Check LEN <= MOST before touching anything outside RAM
	cjne	a, #>MOST, 1$
	mov	a, LEN_LOW
	jz	2$
	sjmp	refuse
1$:	jnc	refuse
2$:	mov	r7, #1
	lcall	WAKE
	clr	a
	mov	LENGTH + 0, a
	mov	LENGTH + 1, a
	mov	LENGTH + 2, LEN_HIGH
	mov	LENGTH + 3, LEN_LOW
	mov	dptr, #IN_LENGTH
	mov	a, LEN_HIGH
	movx	@dptr, a
	inc	dptr
	mov	a, LEN_LOW
	movx	@dptr, a
	mov	dptr, #PAGE_FLAG
	mov	a, PAGE
	movx	@dptr, a
	; UAS carries no host length
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jnb	acc.0, 3$
	clr	a
	mov	HOST_LENGTH + 0, a
	mov	HOST_LENGTH + 1, a
	mov	HOST_LENGTH + 2, LEN_HIGH
	mov	HOST_LENGTH + 3, LEN_LOW
3$:	mov	r6, LEN_HIGH
	mov	r7, LEN_LOW
	mov	a, r6
	jnz	long
	lcall	copy
data_in:
	mov	r7, #1
	ret

; A host that expects no data gets the phase error of data-in (case 2 of Bulk-Only's thirteen, at 0x0016). BEGIN_REPLY
; would set LENGTH to 0, and the lengths would agree.
long:	mov	a, HOST_LENGTH + 0
	orl	a, HOST_LENGTH + 1
	orl	a, HOST_LENGTH + 2
	orl	a, HOST_LENGTH + 3
	jz	data_in
	mov	r7, #0
	lcall	BEGIN_REPLY
	lcall	packet
	mov	r7, #8
	ret

refuse:	mov	r3, #0x00
	mov	r5, #0x24
	mov	r7, #0x05
	lcall	SET_SENSE
	mov	r7, #5
	ret

; --- A packet of a long reply was sent. R7 = 1: the next is armed; 0: none is left.
packet_out:
	mov	dptr, #KIND
	movx	a, @dptr
	add	a, #-E4_KIND
	jc	1$
	ljmp	NEXT_PACKET
1$:	mov	r5, a
	lcall	load_packet
	clr	c
	mov	a, LENGTH + 3
	subb	a, r7
	mov	r7, a
	mov	a, LENGTH + 2
	subb	a, r6
	mov	r6, a
	jc	2$
	orl	a, r7
	jnz	3$
2$:	clr	a
	mov	LENGTH + 2, a
	mov	LENGTH + 3, a
	mov	r7, a
	ret
3$:	mov	LENGTH + 2, r6
	mov	LENGTH + 3, r7
	push	PAGE
	push	TO_HIGH
	push	TO_LOW
	push	FROM_HIGH
	push	FROM_LOW
	mov	PAGE, r5
	mov	dptr, #SOURCE
	movx	a, @dptr
	mov	FROM_HIGH, a
	inc	dptr
	movx	a, @dptr
	mov	FROM_LOW, a
	; wake the link for each packet, as a command of its own would
	mov	r7, #1
	lcall	WAKE
	lcall	packet
	pop	FROM_LOW
	pop	FROM_HIGH
	pop	TO_LOW
	pop	TO_HIGH
	pop	PAGE
	; Arming comes last: the interrupt acknowledges the old packet at 0x106E, before which the new one must not be sent.
	lcall	SEND_IN
	mov	r7, #1
	ret

load_packet:
	mov	dptr, #PACKET
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r7, a
	ret

; --- Copies the lesser of LENGTH and PACKET, which SEND_IN will arm, and saves where the next packet begins.
packet:	lcall	load_packet
	clr	c
	mov	a, LENGTH + 3
	subb	a, r7
	mov	a, LENGTH + 2
	subb	a, r6
	jnc	1$
	mov	r6, LENGTH + 2
	mov	r7, LENGTH + 3
1$:	lcall	copy
	mov	dptr, #KIND
	mov	a, PAGE
	add	a, #E4_KIND
	movx	@dptr, a
	mov	dptr, #SOURCE
	mov	a, FROM_HIGH
	movx	@dptr, a
	inc	dptr
	mov	a, FROM_LOW
	movx	@dptr, a
	ret

; --- Copies R6:R7 bytes, at most 0x400, from FROM in page PAGE to the data buffer. Reads each byte once, in ascending
; order. Advances PAGE and FROM past them.
copy:	mov	TO_HIGH, #>DATA_BUFFER
	mov	TO_LOW, #<DATA_BUFFER
	mov	a, PAGE
	jz	run
	; Past 0xFFFF mode 0x51 continues in the next page, because the firmware's far pointer carries into its type byte.
	mov	a, r7
	add	a, FROM_LOW
	mov	r5, a
	mov	a, r6
	addc	a, FROM_HIGH
	jnc	run
	mov	r4, a
	push	0x05
	push	0x04
	clr	c
	mov	a, r7
	subb	a, r5
	mov	r7, a
	mov	a, r6
	subb	a, r4
	mov	r6, a
	lcall	run
	inc	PAGE
	pop	0x06
	pop	0x07
run:	; A source less than a block below the buffer overlaps it: what is read there was written a few bytes before.
	mov	a, FROM_HIGH
	cjne	a, #>(DATA_BUFFER - 1), 1$
	mov	a, FROM_LOW
	add	a, #7
	jc	byte_by_byte
	; First the odd bytes, then B blocks of eight.
1$:	mov	a, r7
	swap	a
	rl	a
	anl	a, #0x1F
	mov	b, a
	mov	a, r6
	swap	a
	rl	a
	orl	b, a
	mov	a, r7
	anl	a, #7
	mov	r7, a
	mov	r6, #1
	jnz	next_byte
	sjmp	blocks

byte_by_byte:
	mov	b, #0
	mov	a, r7
	jz	2$
	inc	r6
2$:	mov	a, r6
	jz	done
next_byte:
	mov	dpl, FROM_LOW
	mov	dph, FROM_HIGH
	mov	XPAGE, PAGE
	movx	a, @dptr
	mov	XPAGE, #0
	inc	dptr
	mov	FROM_LOW, dpl
	mov	FROM_HIGH, dph
	mov	dpl, TO_LOW
	mov	dph, TO_HIGH
	movx	@dptr, a
	inc	dptr
	mov	TO_LOW, dpl
	mov	TO_HIGH, dph
	djnz	r7, next_byte
	djnz	r6, next_byte
blocks:	mov	a, b
	jz	done

; Source and buffer share one data pointer, so copy eight bytes for each switch.
next_block:
	mov	dpl, FROM_LOW
	mov	dph, FROM_HIGH
	mov	XPAGE, PAGE
	movx	a, @dptr
	mov	r0, a
	inc	dptr
	movx	a, @dptr
	mov	r1, a
	inc	dptr
	movx	a, @dptr
	mov	r2, a
	inc	dptr
	movx	a, @dptr
	mov	r3, a
	inc	dptr
	movx	a, @dptr
	mov	r4, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
	inc	dptr
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	r7, a
	inc	dptr
	mov	XPAGE, #0
	mov	FROM_LOW, dpl
	mov	FROM_HIGH, dph
	mov	dpl, TO_LOW
	mov	dph, TO_HIGH
	mov	a, r0
	movx	@dptr, a
	inc	dptr
	mov	a, r1
	movx	@dptr, a
	inc	dptr
	mov	a, r2
	movx	@dptr, a
	inc	dptr
	mov	a, r3
	movx	@dptr, a
	inc	dptr
	mov	a, r4
	movx	@dptr, a
	inc	dptr
	mov	a, r5
	movx	@dptr, a
	inc	dptr
	mov	a, r6
	movx	@dptr, a
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	inc	dptr
	mov	TO_LOW, dpl
	mov	TO_HIGH, dph
	djnz	b, next_block
done:	ret
