; Routines that everything uses: calls across banks, generic pointers, dwords, case tables.

; ---------------------------------------------------------------------------------------------------------------
; Calls across banks. DPTR is the target. The target returns through the stub of the caller's bank, 0x030A or 0x031B,
; whose low byte is at BANK_RETURN.
	.org	ENTER_BANK0
enter_bank0:
	push	BANK_RETURN
	mov	a, #0x03
	push	acc
	sjmp	into_bank0
	.org	0x030A
return_bank0:
	mov	BANK, #0
	mov	BANK_RETURN, #0x0A
	ret
	.org	ENTER_BANK1
enter_bank1:
	push	BANK_RETURN
	mov	a, #0x03
	push	acc
	sjmp	into_bank1
	.org	0x031B
return_bank1:
	mov	BANK, #1
	mov	BANK_RETURN, #0x1B
	ret
into_bank0:
	push	dpl
	push	dph
	sjmp	return_bank0
into_bank1:
	push	dpl
	push	dph
	sjmp	return_bank1

config_read:
	mov	dptr, #CONFIG_READ
	sjmp	ENTER_BANK1
config_write:
	mov	dptr, #CONFIG_WRITE
	sjmp	ENTER_BANK1
flash_read:
	mov	dptr, #FLASH_READ
	sjmp	ENTER_BANK1
firmware_write:
	mov	dptr, #FIRMWARE_WRITE
	sjmp	ENTER_BANK1
xdata_read:
	mov	dptr, #XDATA_READ
	sjmp	ENTER_BANK1
xdata_write:
	mov	dptr, #XDATA_WRITE
	sjmp	ENTER_BANK1
reset:	mov	dptr, #RESET
	sjmp	ENTER_BANK1
inquiry:
	mov	dptr, #INQUIRY
	sjmp	ENTER_BANK1
request_sense:
	mov	dptr, #REQUEST_SENSE
	sjmp	ENTER_BANK1
mode_sense:
	mov	dptr, #MODE_SENSE
	sjmp	ENTER_BANK1
report_luns:
	mov	dptr, #REPORT_LUNS
	sjmp	ENTER_BANK1
read_capacity:
	mov	dptr, #READ_CAPACITY
	sjmp	ENTER_BANK1
drive_start:
	mov	dptr, #DRIVE_START
	sjmp	ENTER_BANK1
nvme_admin:
	mov	dptr, #NVME_ADMIN
	sjmp	ENTER_BANK1
nvme_flush:
	mov	dptr, #NVME_FLUSH
	sjmp	ENTER_BANK1
ep0_service:
	mov	dptr, #EP0_SERVICE
	sjmp	ENTER_BANK0

	.org	FLASH_COMMAND
flash_command:
	mov	dptr, #FLASH_COMMAND_0
	ljmp	ENTER_BANK0
program:
	mov	dptr, #PROGRAM_0
	ljmp	ENTER_BANK0
erase:	mov	dptr, #ERASE_0
	ljmp	ENTER_BANK0

	.org	WAKE
wake:
	mov	dptr, #WAKE_0
	ljmp	ENTER_BANK0

; ---------------------------------------------------------------------------------------------------------------
; Bytes through a generic pointer in R3:R2:R1. Type 0 is IDATA, 1 XDATA, 2 and up page type - 1 of XDATA, 0xFF code.
	.org	LOAD_GENERIC
load_generic:
	mov	a, r3
	jz	2$
	mov	dpl, r1
	mov	dph, r2
	inc	a
	jz	1$
	mov	XPAGE, r3
	dec	XPAGE
	movx	a, @dptr
	mov	XPAGE, #0
	ret
1$:	movc	a, @a+dptr
	ret
2$:	mov	a, @r1
	ret

	.org	STORE_GENERIC
store_generic:
	cjne	r3, #0, 1$
	mov	@r1, a
	ret
1$:	mov	dpl, r1
	mov	dph, r2
	mov	XPAGE, r3
	dec	XPAGE
	movx	@dptr, a
	mov	XPAGE, #0
	ret

; Loads R4 to R7 from the dword at IDATA @R0, high byte first.
	.org	LOAD_DWORD
load_dword:
	mov	a, r0
	add	a, #3
	mov	r0, a
	mov	a, @r0
	mov	r7, a
	dec	r0
	mov	a, @r0
	mov	r6, a
	dec	r0
	sjmp	load_high

; Stores R4 to R7 to the dword at IDATA @R0.
	.org	STORE_DWORD
store_dword:
	mov	@r0, 0x04
	inc	r0
	mov	@r0, 0x05
	inc	r0
	mov	@r0, 0x06
	inc	r0
	mov	@r0, 0x07
	ret
load_high:
	mov	a, @r0
	mov	r5, a
	dec	r0
	mov	a, @r0
	mov	r4, a
	ret

; Loads R3:R2:R1 from the generic pointer at XDATA @DPTR.
	.org	LOAD_POINTER
load_pointer:
	movx	a, @dptr
	inc	dptr
	mov	r3, a
	movx	a, @dptr
	inc	dptr
	mov	r2, a
	movx	a, @dptr
	mov	r1, a
	ret

; Jumps by A through the table after the call: entries of target and value, 3 bytes each, then 00 00 and the target for
; all other values.
	.org	CASE
case:
	pop	dph
	pop	dpl
	mov	r0, a
1$:	clr	a
	movc	a, @a+dptr
	mov	r1, a
	mov	a, #1
	movc	a, @a+dptr
	orl	a, r1
	jz	2$
	mov	a, #2
	movc	a, @a+dptr
	xrl	a, r0
	jz	3$
	inc	dptr
	inc	dptr
	inc	dptr
	sjmp	1$
2$:	inc	dptr
	inc	dptr
3$:	clr	a
	movc	a, @a+dptr
	push	acc
	mov	a, #1
	movc	a, @a+dptr
	pop	dph
	mov	dpl, a
	clr	a
	jmp	@a+dptr

; ---------------------------------------------------------------------------------------------------------------
; R4 to R7 = dword at IDATA @R0 - dword at IDATA @R1. Carry: the second is larger. A = 0: they are equal.
	.org	0x1000
subtract:
	mov	a, r0
	add	a, #3
	mov	r0, a
	mov	a, r1
	add	a, #3
	mov	r1, a
	clr	c
	mov	a, @r0
	subb	a, @r1
	mov	r7, a
	dec	r0
	dec	r1
	mov	a, @r0
	subb	a, @r1
	mov	r6, a
	dec	r0
	dec	r1
	mov	a, @r0
	subb	a, @r1
	mov	r5, a
	dec	r0
	dec	r1
	mov	a, @r0
	subb	a, @r1
	mov	r4, a
	orl	a, r5
	orl	a, r6
	orl	a, r7
	ret

; A = 0 if the dword at IDATA @R0 is 0.
is_zero:
	mov	a, @r0
	inc	r0
	orl	a, @r0
	inc	r0
	orl	a, @r0
	inc	r0
	orl	a, @r0
	ret

; Clears the dword at IDATA @R0.
clear_dword:
	clr	a
	mov	@r0, a
	inc	r0
	mov	@r0, a
	inc	r0
	mov	@r0, a
	inc	r0
	mov	@r0, a
	ret
