; READ(16) from the SRAM, by software. docs/lab/read16-sram.md has the reasons and the evidence for each claim
; below.
;
; While a GPU runtime's initialisation is in place and no SSD was ever started, READ(16) of 1 to 64 sectors returns the
; SRAM's first bytes. They go in packets, as the firmware sends every long reply: R7 = 8, and an interrupt for each sent
; packet. The LBA has no effect, as for WRITE(16). The vendor's code handles any other READ(16).
;
; Scratch: A, B, DPTR, PSW's flags, R0 to R7, IDATA 0x3C to 0x3F. The interrupt for a sent packet saves and restores
; IDATA 0x3C to 0x3F. The window's page changes only while a packet is copied.
; State between packets: only the firmware's own variables for a long reply, 0x0AFA to 0x0AFE.
	.module	read16_sram

; 240417's variables and routines.
WRITE_CACHE	= 0x0000	; XDATA: MODE SELECT's bit, 0 or 1. The runtime writes 0x33, which no firmware code does
OPCODE		= 0x0002	; XDATA: CDB byte 0 of the running command
SECTORS_A_SLOT	= 0x054B	; XDATA: 0x20 after the runtime's initialisation, 0 without a drive
DRIVE		= 0x05A8	; XDATA: 2 after the initialisation: number of the record that describes the drive
DRIVE_STATE	= 0x05F8	; XDATA: 4 after the initialisation: record 2's state, ready
READ_KIND	= 0x0A83	; XDATA: bit 0: a 10-byte CDB, bit 1: a READ
PACKET		= 0x0AFA	; XDATA: word, big-endian: bytes of a full packet, 0x40, 0x200 or 0x400
POSITION	= 0x0AFC	; XDATA: word, big-endian: position in a long reply
WINDOW_COUNT	= 0x0AFE	; XDATA: the vendor's replies count the window's pages here
PARTS_AT_ONCE	= 0x0AFF	; XDATA: 0 unless an SSD was started
USB_MODE	= 0x9000	; XDATA: bit 0 is set over UAS
WINDOW_PAGE	= 0xC8D9	; XDATA: bits 2:0: which 4 KiB of the SRAM are at 0xF000
DATA_BUFFER	= 0x8000	; XDATA: data-in is sent from here
WINDOW		= 0xF000	; XDATA: 4 KiB of the SRAM
LENGTH		= 0x09		; IDATA: dword, big-endian: bytes left to send
HOST_LENGTH	= 0x6B		; IDATA: dword, big-endian
IS_READY	= 0x3F4A	; R7 = 0, or the status to return, with sense set
COUNT		= 0x1C9F	; R7 as READ_KIND: R4:R5 = the CDB's number of sectors
QUEUE_BULK	= 0x2BEA	; READ and WRITE over Bulk-Only
QUEUE_UAS	= 0x3CFE	; READ and WRITE over UAS
IN_TURN		= 0x3D19	; every other command over UAS: waits for its turn, then is dispatched
FIRST_PAGE	= 0x3298	; WINDOW_PAGE's address and value, with page 0
OTHERS		= 0x4016	; the routine for the next packet, after its first instruction
BEGIN_REPLY	= 0x425F	; kind R7: clears POSITION and WINDOW_COUNT, sets PACKET, LENGTH and the residue; R7 = 8
SEND_IN		= 0x5216	; arms the lesser of LENGTH and PACKET
SET_SENSE	= 0x523C	; sense key R7, additional code R5, qualifier R3

READ_16		= 0x88
OURS		= 0x80		; WINDOW_COUNT of a READ(16)'s reply. The vendor's longest reply, 4 KiB, leaves 1 there
MOST		= 64		; maximum sectors: the window's eight pages

; IDATA
TO_HIGH		= 0x3C
TO_LOW		= 0x3D
FROM_HIGH	= 0x3E
FROM_LOW	= 0x3F

; Over UAS, if the CDB is READ(16)'s.
	.area	UAS (ABS,CODE)
	.org	0x3CF1
	ljmp	read_uas

; In the dispatcher, instead of LCALL QUEUE_BULK: READ and WRITE over Bulk-Only, and commands from read_uas.
	.area	DISPATCH (ABS,CODE)
	.org	0x3908
	lcall	read_or_write

; The routine for the next packet of a long reply, instead of LCALL FIRST_PAGE.
	.area	PACKET_OUT (ABS,CODE)
	.org	0x4013
	ljmp	next_packet

	.area	CAVE (ABS,CODE)
	.org	0x6C00
read_uas:
	acall	is_ours
	jnz	1$
	ljmp	IN_TURN
1$:	mov	r7, #2
	ljmp	QUEUE_UAS

; A = 0 if the runtime's initialisation is in place and no SSD was started. Changes only A and DPTR.
is_ours:
	mov	dptr, #WRITE_CACHE
	movx	a, @dptr
	cjne	a, #0x33, 1$
	mov	dptr, #SECTORS_A_SLOT
	movx	a, @dptr
	cjne	a, #0x20, 1$
	mov	dptr, #DRIVE
	movx	a, @dptr
	cjne	a, #0x02, 1$
	mov	dptr, #DRIVE_STATE
	movx	a, @dptr
	cjne	a, #0x04, 1$
	mov	dptr, #PARTS_AT_ONCE
	movx	a, @dptr
	ret
1$:	mov	a, #1
	ret

; R7 as READ_KIND. Returns R7 = 8: data in packets; 1: data in; 5: answer; or IS_READY's result.
read_or_write:
	cjne	r7, #2, 1$
	acall	is_ours
	jz	2$
1$:	ljmp	QUEUE_BULK
2$:	mov	dptr, #READ_KIND
	mov	a, r7
	movx	@dptr, a
	lcall	IS_READY
	mov	a, r7
	jnz	out
	mov	r7, #2
	lcall	COUNT
	mov	a, r4
	jnz	refuse
	mov	a, r5
	jz	refuse
	add	a, #-(MOST + 1)
	jc	refuse
	mov	a, r5
	rl	a
	mov	LENGTH + 2, a
	clr	a
	mov	LENGTH + 0, a
	mov	LENGTH + 1, a
	mov	LENGTH + 3, a
	; UAS carries no host length
	mov	dptr, #USB_MODE
	movx	a, @dptr
	jnb	acc.0, 3$
	clr	a
	mov	HOST_LENGTH + 0, a
	mov	HOST_LENGTH + 1, a
	mov	HOST_LENGTH + 2, LENGTH + 2
	mov	HOST_LENGTH + 3, a
; A host that expects no data gets the phase error of data-in (case 2 of Bulk-Only's thirteen, at 0x0016). BEGIN_REPLY
; would set LENGTH to 0, and the lengths would agree.
3$:	mov	a, HOST_LENGTH + 0
	orl	a, HOST_LENGTH + 1
	orl	a, HOST_LENGTH + 2
	orl	a, HOST_LENGTH + 3
	jz	data_in
	mov	r7, #0
	lcall	BEGIN_REPLY
	mov	dptr, #WINDOW_COUNT
	mov	a, #OURS
	movx	@dptr, a
	acall	copy
	mov	r7, #8
out:	ret
data_in:
	mov	r7, #1
	ret
refuse:	mov	r3, #0x00
	mov	r5, #0x24
	mov	r7, #0x05
	lcall	SET_SENSE
	mov	r7, #5
	ret

; --- A packet of a long reply was sent. R7 = 1: the next is armed; 0: none is left. Other replies continue in the
; vendor's code.
next_packet:
	mov	dptr, #WINDOW_COUNT
	movx	a, @dptr
	jb	acc.7, 1$
	lcall	FIRST_PAGE
	ljmp	OTHERS
1$:	acall	load_packet
	mov	dptr, #POSITION + 1
	movx	a, @dptr
	add	a, r7
	movx	@dptr, a
	mov	dptr, #POSITION
	movx	a, @dptr
	addc	a, r6
	movx	@dptr, a
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
	push	TO_HIGH
	push	TO_LOW
	push	FROM_HIGH
	push	FROM_LOW
	acall	copy
	pop	FROM_LOW
	pop	FROM_HIGH
	pop	TO_LOW
	pop	TO_HIGH
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

; --- Copies the lesser of LENGTH and PACKET, rounded up to eight bytes, from POSITION in the SRAM to the data buffer.
; Reads each byte once, in ascending order. It never passes the page's end, because packets divide the page. The window
; is back on the page that it found when this returns: the host may never ask for another packet.
copy:	acall	load_packet
	clr	c
	mov	a, LENGTH + 3
	subb	a, r7
	mov	a, LENGTH + 2
	subb	a, r6
	jnc	1$
	mov	r6, LENGTH + 2
	mov	r7, LENGTH + 3
; At most 0x400 bytes, so B = at most 128 blocks.
1$:	mov	a, r7
	add	a, #7
	mov	r7, a
	clr	a
	addc	a, r6
	mov	r6, a
	mov	a, r7
	swap	a
	rl	a
	anl	a, #0x1F
	mov	b, a
	mov	a, r6
	swap	a
	rl	a
	orl	b, a
	mov	dptr, #POSITION
	movx	a, @dptr
	mov	r6, a
	inc	dptr
	movx	a, @dptr
	mov	FROM_LOW, a
	mov	a, r6
	orl	a, #>WINDOW
	mov	FROM_HIGH, a
	mov	a, r6
	swap	a
	anl	a, #0x07
	mov	r6, a
	mov	dptr, #WINDOW_PAGE
	movx	a, @dptr
	push	acc
	anl	a, #0xF8
	orl	a, r6
	movx	@dptr, a
	mov	TO_HIGH, #>DATA_BUFFER
	mov	TO_LOW, #<DATA_BUFFER
; Window and buffer share one data pointer, so copy eight bytes for each switch.
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
	djnz	b, next_block
	mov	dptr, #WINDOW_PAGE
	pop	acc
	movx	@dptr, a
	ret
