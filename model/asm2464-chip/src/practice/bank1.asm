; The practice image's bank 1: the command handlers. See practice.md and map.inc.
	.module	bank1
	.include "map.inc"
	.area	BANK1 (ABS,CODE)

	.include "vendor.asm"
	.include "scsi.asm"
	.include "cdb.asm"
	.include "nvme.asm"
