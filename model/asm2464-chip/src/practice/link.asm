; Trains the PCIe link, and turns its lanes on. Part of both images' start.

	mov	dptr, #PCIE_TRAINING
	mov	a, #0x1C
	movx	@dptr, a
	mov	dptr, #PCIE_LANES
	movx	a, @dptr
	setb	acc.0
	movx	@dptr, a
