; Reset, start-up, main loop.
;
; The CPU starts here with code bank 0 selected and no interrupt enabled. A real chip needs more before USB works:
; clocks, PHYs, link. The vendor's firmware writes about 400 registers for that. This image writes only those that the
; chip model gives a meaning to.

	.org	0x0000
	ljmp	start
	.org	0x0003			; INT0: USB, UAS, DMA, NVMe
	ljmp	INT0
	.org	0x000B
	reti
	.org	0x0013			; INT1: never enabled
	reti
	.org	0x001B
	reti
	.org	0x0023
	reti

start:	mov	sp, #STACK
	mov	BANK, #0
	mov	BANK_RETURN, #0x0A
	mov	XPAGE, #0
	; Clears IDATA up to the stack, and XDATA 0x0000-0x0FFF with all variables, because a reset of the CPU keeps both.
	mov	r0, #LENGTH
	clr	a
1$:	mov	@r0, a
	inc	r0
	cjne	r0, #STACK + 1, 1$
	mov	dptr, #0
2$:	clr	a
	movx	@dptr, a
	inc	dptr
	mov	a, dph
	cjne	a, #0x10, 2$
	; Waits until the chip's clocks run.
	mov	dptr, #CLOCK_READY
3$:	movx	a, @dptr
	anl	a, #0x30
	jz	3$
	lcall	set_variables
	lcall	load_config
	lcall	transport_reset
	.include "link.asm"
	; Appears on the bus.
	mov	dptr, #USB_CONTROL
	movx	a, @dptr
	clr	acc.1
	movx	@dptr, a
	mov	dptr, #INT_ENABLES
	mov	a, #0x05
	movx	@dptr, a
	setb	ex0			; level-triggered, since IT0 is 0
	setb	ea

; All work is done in the interrupt. Only a restart is done here, because it must not interrupt that work.
idle:	mov	dptr, #RESTART
	movx	a, @dptr
	jz	idle
	clr	ea
	mov	dptr, #RESET_STATE
	movx	a, @dptr
	cjne	a, #0x60, leave_bus
	mov	dptr, #CHIP_RESET
	mov	a, #1
	movx	@dptr, a
stopped:
	sjmp	stopped

; E8 in mode 0x51: stays off the bus until the power goes. The device behind the bridge loses its power.
leave_bus:
	mov	dptr, #LINK_LEAVE
	mov	a, #0x10
	movx	@dptr, a
	mov	dptr, #USB_CONTROL
	movx	a, @dptr
	setb	acc.1
	movx	@dptr, a
	mov	dptr, #USB_ADDRESS
	movx	a, @dptr
	clr	acc.7
	movx	@dptr, a
	mov	dptr, #DEVICE_POWER
	movx	a, @dptr
	clr	acc.5
	movx	@dptr, a
	mov	dptr, #RESTART
	clr	a
	movx	@dptr, a
	setb	ea
	sjmp	idle

; Sets variables that tools may read, and those that don't start as 0.
set_variables:
	mov	dptr, #CDB_POINTER
	mov	a, #1
	movx	@dptr, a
	inc	dptr
	mov	a, #>CBW
	movx	@dptr, a
	inc	dptr
	mov	a, #<CBW
	movx	@dptr, a
	mov	dptr, #NEW_ADDRESS
	mov	a, #0xFF
	movx	@dptr, a
	; Marks all of the SRAM as free.
	mov	dptr, #SRAM_USED
	clr	a
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	inc	dptr
	movx	@dptr, a
	; No NVMe device was found. A GPU runtime may report one: see NVME_READY.
	mov	dptr, #NVME_ERROR
	mov	a, #1
	movx	@dptr, a
	mov	r6, #0
1$:	mov	dptr, #version
	mov	a, r6
	movc	a, @a+dptr
	mov	r5, a
	mov	a, r6
	add	a, #<VERSION_COPY
	mov	dpl, a
	mov	dph, #>VERSION_COPY
	mov	a, r5
	movx	@dptr, a
	inc	r6
	cjne	r6, #6, 1$
	ret

	.org	0x0200
version:
	.db	0x26, 0x11, 0x21, 0x00, 0x00, 0x01

; Reads configuration block 0 from the flash. It is valid if its magic and its checksum are right. Otherwise the
; identity is that of default_config.
load_config:
	mov	dptr, #BUFFER_OWNER
	movx	a, @dptr
	anl	a, #0xF9
	orl	a, #0x02
	movx	@dptr, a
	mov	dptr, #FLASH_ADDR
	mov	r6, #5			; address 0, length's high byte 0
	clr	a
1$:	movx	@dptr, a
	inc	dptr
	djnz	r6, 1$
	mov	a, #CONFIG_LEN
	movx	@dptr, a
	mov	r7, #0x03		; read
	mov	r5, #3
	clr	a
	mov	r4, a
	mov	r3, a
	mov	r2, a
	lcall	FLASH_COMMAND
	; Copies it, and sums bytes 0x04 to 0x7E.
	mov	r6, #0			; offset
	mov	r7, #0			; sum
2$:	mov	dph, #>FLASH_BUFFER
	mov	dpl, r6
	movx	a, @dptr
	mov	dph, #>CONFIG
	movx	@dptr, a
	cjne	r6, #4, 3$
3$:	jc	4$
	cjne	r6, #CONFIG_LEN - 1, 5$
	sjmp	6$
5$:	add	a, r7
	mov	r7, a
4$:	inc	r6
	sjmp	2$
6$:	xrl	a, r7			; A: the checksum
	jnz	7$
	mov	dptr, #CONFIG + 0x7E
	movx	a, @dptr
	xrl	a, #0x5A
	jnz	7$
	mov	dptr, #CONFIG_HOLDS
	inc	a
	movx	@dptr, a
7$:	ret

; ---------------------------------------------------------------------------------------------------------------
; A = byte R1 of configuration block 0.
	.org	CONFIG_BYTE
config_byte:
	mov	dptr, #CONFIG_HOLDS
	movx	a, @dptr
	jz	1$
	mov	dph, #>CONFIG
	mov	dpl, r1
	movx	a, @dptr
	ret
1$:	mov	dptr, #default_config
	mov	a, r1
	movc	a, @a+dptr
	ret

; The same layout as a configuration block. A text ends at the first FF.
	.org	0x5480
default_config:
	.db	0xFF, 0xFF, 0xFF, 0xFF
	.ascii	"000000000000"		; 0x04 serial number
	.db	0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF
	.ascii	"ASMedia"		; 0x18 manufacturer
	.db	0xFF
	.org	0x5480 + 0x3C
	.ascii	"asmpatch"		; 0x3C T10 vendor
	.ascii	"ASM246X"		; 0x44 product
	.db	0xFF
	.org	0x5480 + 0x64
	.ascii	"practice image"	; 0x64 T10 product
	.db	0xFF, 0xFF
	.db	0x4C, 0x17, 0x64, 0x24	; 0x74 idVendor, idProduct
	.db	0x00, 0x01		; 0x78 bcdDevice
