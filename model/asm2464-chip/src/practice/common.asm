; The practice image's common code and bank 0. See practice.md for its purpose and map.inc for addresses.
;
; Read in this order: start.asm (reset, main loop), interrupt.asm (causes of an interrupt), ep0.asm (the control
; endpoint), bulk_only.asm and uas.asm (commands and their answers), dispatch.asm (from opcode to handler), reply.asm
; (data to the host), data_out.asm (data from the host), dma.asm and drive.asm (READ and WRITE), flash.asm. The command
; handlers are in bank 1.
	.module	common
	.include "map.inc"
	.area	COMMON (ABS,CODE)

	.include "start.asm"
	.include "support.asm"
	.include "interrupt.asm"
	.include "bulk_only.asm"
	.include "uas.asm"
	.include "dma.asm"
	.include "drive.asm"
	.include "data_out.asm"
	.include "dispatch.asm"
	.include "reply.asm"
	; bank 0
	.include "ep0.asm"
	.include "descriptors.asm"
	.include "flash.asm"
