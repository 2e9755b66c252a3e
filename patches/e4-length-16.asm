; E4 with a 16-bit length: CDB byte 5 is its high byte, byte 1 its low byte. docs/e4-length-16.md tells why, what was
; measured, and how each claim below is known.
;
; Replaces E4's handler from the place where it has found the mode byte good. The whole rest of the command is done
; here, with the vendor's register accesses in the vendor's order; nothing jumps back.
;
; On entry: R7 = CDB byte 2, 0x50 or 0x51. On return: R7 = 1, data in; or 5, answer, with sense 5/24/00.
; Scratch: A, B, DPTR, PSW's flags, R0 to R7, IDATA 0x3B to 0x3F.
; The stack never holds more than the vendor's handler puts there: one LCALL deep, and WAKE as the vendor calls it.
	.module	e4_length_16

; What the firmware offers; the same addresses in 240417 and in the practice image.
CDB_POINTER	= 0x0007	; XDATA: generic pointer to the command's context, which is in XDATA
CDB_1		= 0x10		; CDB byte 1 is at the pointer + 0x10
PAGE_FLAG	= 0x0215	; XDATA: 1 while E4 reads the other page
USB_MODE	= 0x9000	; XDATA: bit 0 set while Bulk-Only
IN_LENGTH	= 0x9007	; XDATA: word, big-endian
LENGTH		= 0x09		; IDATA: dword, big-endian
HOST_LENGTH	= 0x6B		; IDATA: dword, big-endian
WAKE		= 0x04CB	; R7 = 1: lets the link leave its idle states
LOAD_GENERIC	= 0x0BC8	; A = the byte at R3:R2:R1; keeps R4 to R7
LOAD_POINTER	= 0x0DDD	; R3:R2:R1 = the pointer at XDATA @DPTR
SET_SENSE	= 0x523C	; sense key R7, additional code R5, qualifier R3

MOST		= 0x1000	; the data buffer's size

; IDATA, with two lives each.
MODE		= 0x3B
LEN_HIGH	= 0x3C
LEN_LOW		= 0x3D
BLOCKS		= 0x3B
TO_HIGH		= 0x3C
TO_LOW		= 0x3D
FROM_HIGH	= 0x3E
FROM_LOW	= 0x3F

	.area	SITE (ABS,CODE)
	.org	0xC9A8
	ljmp	e4_length_16

	.area	CAVE (ABS,CODE)
	.org	0xF840
e4_length_16:
	mov	MODE, r7
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
	mov	a, MODE
	anl	a, #1
	movx	@dptr, a
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
	mov	TO_HIGH, #0x80
	mov	TO_LOW, #0x00
	mov	a, MODE
	jnb	acc.0, main_page
	ljmp	other_page

refuse:	mov	r3, #0x00
	mov	r5, #0x24
	mov	r7, #0x05
	lcall	SET_SENSE
	mov	r7, #5
	ret

; --- mode 0x50: R6:R7 bytes
main_page:
	; A source less than a block below the buffer overlaps it: what is read there was written a few bytes before.
	mov	a, FROM_HIGH
	cjne	a, #0x7F, 1$
	mov	a, FROM_LOW
	add	a, #7
	jc	byte_by_byte
	; The odd bytes first, then blocks of eight: B:BLOCKS = R6:R7 / 8, as DJNZ counts.
1$:	mov	a, r7
	swap	a
	rl	a
	anl	a, #0x1F
	mov	BLOCKS, a
	mov	a, r6
	swap	a
	rl	a
	mov	b, a
	anl	a, #0xE0
	orl	a, BLOCKS
	mov	BLOCKS, a
	anl	b, #0x1F
	jz	2$
	inc	b
2$:	mov	a, r7
	anl	a, #7
	jz	3$
	mov	r7, a
	mov	r6, #1
	sjmp	next_byte
3$:	mov	a, BLOCKS
	orl	a, b
	jnz	next_block
	ljmp	done

byte_by_byte:
	mov	BLOCKS, #0
	mov	b, #0
	mov	a, r7
	jz	4$
	inc	r6
4$:	mov	a, r6
	jz	done
next_byte:
	mov	dpl, FROM_LOW
	mov	dph, FROM_HIGH
	movx	a, @dptr
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
	mov	a, BLOCKS
	orl	a, b
	jz	done

next_block:
	mov	dpl, FROM_LOW
	mov	dph, FROM_HIGH
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
	djnz	BLOCKS, next_block
	djnz	b, next_block
done:	mov	r7, #1
	ret

; --- mode 0x51: R6:R7 bytes of the other page, each as the vendor reads it. Past 0xFFFF its address's carry goes
; into the pointer's type, as it does there.
other_page:
	mov	a, r7
	jz	1$
	inc	r6
1$:	mov	a, r6
	jz	done
	mov	r1, FROM_LOW
	mov	r2, FROM_HIGH
	mov	r3, #2
2$:	lcall	LOAD_GENERIC
	mov	dpl, TO_LOW
	mov	dph, TO_HIGH
	movx	@dptr, a
	inc	dptr
	mov	TO_LOW, dpl
	mov	TO_HIGH, dph
	inc	r1
	cjne	r1, #0, 3$
	inc	r2
	cjne	r2, #0, 3$
	inc	r3
3$:	djnz	r7, 2$
	djnz	r6, 2$
	sjmp	done
