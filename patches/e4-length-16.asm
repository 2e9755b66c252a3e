; E4 with a 16-bit length: CDB byte 5 is its high byte, byte 1 its low byte. docs/e4-length-16.md tells why, what was
; measured, and how each claim below is known.
;
; Up to 255 bytes go the way that E4 always goes: all of them into the data buffer, R7 = 1, one arming. More go packet
; by packet, as the firmware sends every long reply: R7 = 8, an interrupt for each packet that is out, and the next
; packet is copied and armed there. Each packet is read when it is sent.
;
; Scratch: A, B, DPTR, PSW's flags, R0 to R7, SFR 0x93, IDATA 0x3B to 0x3F. In the interrupt for a packet that is out,
; IDATA 0x3B to 0x3F are saved and restored.
; State between packets: the firmware's own variables for a long reply, 0x0AF9 to 0x0AFD, and nothing else.
	.module	e4_length_16

; What the firmware offers; the same addresses in 240417 and in the practice image.
CDB_POINTER	= 0x0007	; XDATA: generic pointer to the command's context, which is in XDATA
CDB_1		= 0x10		; CDB byte 1 is at the pointer + 0x10
PAGE_FLAG	= 0x0215	; XDATA: 1 while E4 reads the other page
KIND		= 0x0AF9	; XDATA: where a long reply is copied from: 0 to 2 the firmware's own
PACKET		= 0x0AFA	; XDATA: word, big-endian: bytes of a full packet, 0x40, 0x200 or 0x400
SOURCE		= 0x0AFC	; XDATA: word, big-endian: how far a long reply is
USB_MODE	= 0x9000	; XDATA: bit 0 set while UAS
IN_LENGTH	= 0x9007	; XDATA: word, big-endian
DATA_BUFFER	= 0x8000	; XDATA: what data-in is sent from
XPAGE		= 0x93		; SFR: the page that MOVX reaches
LENGTH		= 0x09		; IDATA: dword, big-endian: bytes that are left to send
HOST_LENGTH	= 0x6B		; IDATA: dword, big-endian
WAKE		= 0x04CB	; R7 = 1: lets the link leave its idle states
LOAD_POINTER	= 0x0DDD	; R3:R2:R1 = the pointer at XDATA @DPTR
BEGIN_REPLY	= 0x425F	; kind R7: sets up KIND, PACKET, SOURCE, LENGTH and the residue; R7 = 8
NEXT_PACKET	= 0x4013	; a packet is out: copies and arms the next, R7 = 1; or R7 = 0, none is left
SEND_IN		= 0x5216	; arms the lesser of LENGTH and PACKET
SET_SENSE	= 0x523C	; sense key R7, additional code R5, qualifier R3

MOST		= 0x1000	; bytes of one command
E4_KIND		= 3		; KIND of a long E4 is this + the page it reads; SOURCE is then the next address

; IDATA. LEN and TO share two bytes.
PAGE		= 0x3B
LEN_HIGH	= 0x3C
LEN_LOW		= 0x3D
TO_HIGH		= 0x3C
TO_LOW		= 0x3D
FROM_HIGH	= 0x3E
FROM_LOW	= 0x3F

; On entry: R7 = CDB byte 2, 0x50 or 0x51; the mode byte is good.
	.area	HANDLER (ABS,CODE)
	.org	0xC9A8
	ljmp	e4_length_16

; In place of LCALL NEXT_PACKET, which is called from here alone.
	.area	PACKET_OUT (ABS,CODE)
	.org	0x4D4E
	lcall	packet_out

; In the common area: the interrupt finds either bank selected.
	.area	CAVE (ABS,CODE)
	.org	0x6800
; Returns R7 = 1, data in; 8, packet by packet; or 5, answer, with sense 5/24/00.
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
	; LEN <= MOST, before anything outside RAM is touched
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
	; UAS brings no length of the host's
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

; A host that expects no data at all gets the phase error that data-in has for it (case 2 of Bulk-Only's thirteen, at
; 0x0016); BEGIN_REPLY would make LENGTH 0 and the lengths agree.
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

; --- A packet of a long reply is out. R7 = 1: the next is armed; 0: none is left.
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
	; each packet meets the link as a command of its own would
	mov	r7, #1
	lcall	WAKE
	lcall	packet
	pop	FROM_LOW
	pop	FROM_HIGH
	pop	TO_LOW
	pop	TO_HIGH
	pop	PAGE
	; Arming comes last: the interrupt acknowledges the old packet at 0x106E, and the new one must not be out by then.
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

; --- Copies the lesser of LENGTH and PACKET, which SEND_IN will arm, and keeps where the next packet is read.
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

; --- Copies R6:R7 bytes, at most 0x400, from page PAGE at FROM to the data buffer: each read once, ascending. PAGE and
; FROM end behind them.
copy:	mov	TO_HIGH, #>DATA_BUFFER
	mov	TO_LOW, #<DATA_BUFFER
	mov	a, PAGE
	jz	run
	; Past 0xFFFF mode 0x51 goes on in the next page, since the firmware's far pointer carries into its type byte.
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
	; The odd bytes first, then B blocks of eight.
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

; One data pointer serves source and buffer: eight bytes a switch.
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
