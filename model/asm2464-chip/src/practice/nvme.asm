; Bank 1: finds, starts and identifies an NVMe drive. NVM Express base specification 1.4; PCI Express base
; specification. The drive is where 240417 looks for one: on bus 2, behind a switch's port.

; --- Starts the drive. R7 = 0: the drive is ready; otherwise DRIVE_STATE, which is the reason. Changes all registers.
	.org	DRIVE_START
start_drive:
	mov	dptr, #DRIVE_STARTED
	movx	a, @dptr
	jz	1$
	mov	dptr, #PCIE_LINK
	movx	a, @dptr
	mov	r7, #0
	jnz	2$
	ljmp	lost
1$:	mov	dptr, #DRIVE_STATE
	movx	a, @dptr
	mov	r7, a
	jz	probe
	cjne	a, #DRIVE_WAITS, 2$
	ljmp	wait_ready
2$:	ret

; Looks for a drive. If there is none, restores the ports' bus numbers.
probe:	mov	dptr, #PCIE_LINK
	movx	a, @dptr
	jnz	1$
	mov	r7, #NO_DRIVE		; until the CPU restarts
	ret
1$:	mov	dptr, #to_bus_1
	lcall	requests
	jc	not_on_bus_1
	mov	dptr, #TLP_DATA
	movx	a, @dptr
	cjne	a, #0x06, not_on_bus_1
	inc	dptr
	movx	a, @dptr
	cjne	a, #0x04, not_on_bus_1
	mov	dptr, #to_bus_2
	lcall	requests
	jc	not_on_bus_2
	mov	dptr, #TLP_DATA
	movx	a, @dptr
	cjne	a, #0x01, not_on_bus_2
	inc	dptr
	movx	a, @dptr
	cjne	a, #0x08, not_on_bus_2
	inc	dptr
	movx	a, @dptr
	cjne	a, #0x02, not_on_bus_2
	sjmp	enable
not_on_bus_2:
	lcall	look_for_retry
	mov	dptr, #leave_bus_2
	sjmp	no_drive
not_on_bus_1:
	lcall	look_for_retry
	mov	dptr, #leave_bus_1
no_drive:
	lcall	requests
	mov	r7, #NO_DRIVE
	ret
; The next command asks a device again that is not ready for requests yet.
look_for_retry:
	mov	dptr, #TLP_COMPLETION
	movx	a, @dptr
	mov	dptr, #DRIVE_STATE
	cjne	a, #0x40, 1$
	clr	a
	movx	@dptr, a
	ret
1$:	mov	a, #NO_DRIVE
	movx	@dptr, a
	ret

enable:	mov	dptr, #open_way
	lcall	requests
	jc	lost
	mov	TEMP, #0
1$:	mov	dptr, #ask_status
	lcall	requests
	jc	lost
	mov	dptr, #TLP_DATA + 3
	movx	a, @dptr
	jnb	acc.0, 2$		; it has stopped
	djnz	TEMP, 1$
2$:	mov	dptr, #queue_places
	mov	r3, #<ADMIN_QUEUES
	lcall	put_word_pair
	mov	dptr, #queue_places + 4
	mov	r3, #<IO_QUEUES
	lcall	put_word_pair
	clr	a
	mov	dptr, #NEXT_ENTRY + 1
	movx	@dptr, a
	mov	dptr, #NEXT_ENTRY + 3
	movx	@dptr, a
	mov	dptr, #set_up
	lcall	requests
	mov	dptr, #DRIVE_STATE
	mov	a, #DRIVE_WAITS
	movx	@dptr, a
wait_ready:
	mov	TEMP, #0
1$:	mov	dptr, #ask_status
	lcall	requests
	jc	lost
	mov	dptr, #TLP_DATA + 3
	movx	a, @dptr
	jb	acc.0, identify
	djnz	TEMP, 1$
	mov	r7, #DRIVE_WAITS
	ret

lost:	lcall	DRIVE_IS_GONE
	mov	r7, #DRIVE_LOST
	ret

; Reads the maximum transfer size and the number of blocks, and makes the queues.
identify:
	mov	dptr, #identify_controller
	lcall	admin
	jc	lost
	mov	dptr, #SRAM_WINDOW + 77	; MDTS: 0 is unlimited
	movx	a, @dptr
	jz	1$
	cjne	a, #4, 2$
2$:	jc	3$
1$:	mov	a, #4
3$:	cjne	a, #2, 4$		; the engine's parts are whole slots
4$:	jnc	5$
	mov	a, #2
5$:	mov	r6, a
	swap	a
	mov	dptr, #IO_SIZES
	movx	@dptr, a
	mov	a, #1
6$:	djnz	r6, 7$
	sjmp	8$
7$:	rl	a
	sjmp	6$
8$:	rr	a			; 1 << (MDTS - 2)
	mov	dptr, #PART_SLOTS
	movx	@dptr, a
	mov	dptr, #identify_namespace
	lcall	admin
	jc	lost
	mov	dptr, #SRAM_WINDOW + 26	; FLBAS: the current format
	movx	a, @dptr
	anl	a, #0x0F
	rl	a
	rl	a
	add	a, #128 + 2		; the format's LBADS
	mov	dpl, a
	movx	a, @dptr
	cjne	a, #9, no_blocks
	; NSZE, which is little-endian
	mov	r6, #8
	mov	dptr, #SRAM_WINDOW
	mov	r5, #<DRIVE_BLOCKS + 7
9$:	movx	a, @dptr
	inc	dptr
	mov	r3, dpl
	mov	dph, #>DRIVE_BLOCKS
	mov	dpl, r5
	movx	@dptr, a
	dec	r5
	mov	dph, #>SRAM_WINDOW
	mov	dpl, r3
	djnz	r6, 9$
	mov	dptr, #IO_NAMESPACE
	mov	a, #1
	movx	@dptr, a
	mov	dptr, #create_completion
	lcall	admin
	jc	lost
	mov	dptr, #create_submission
	lcall	admin
	jc	lost
	mov	dptr, #DRIVE_STARTED
	mov	a, #1
	movx	@dptr, a
	mov	r7, #0
	ret
no_blocks:
	mov	dptr, #DRIVE_STATE
	mov	a, #NO_DRIVE
	movx	@dptr, a
	mov	r7, a
	ret

; --- SYNCHRONIZE CACHE: a flush. Carry: the drive failed it.
	.org	NVME_FLUSH
nvme_flush:
	mov	dptr, #flush
	mov	r7, #3
	sjmp	run_fields

; Runs the admin command whose fields are at code DPTR, with its data shown at SRAM_WINDOW. Carry: the drive refused it,
; or is lost.
admin:	mov	r1, dpl
	mov	r2, dph
	mov	dptr, #SRAM_WINDOW_PAGE
	movx	a, @dptr
	anl	a, #0xF8
	movx	@dptr, a
	mov	dpl, r1
	mov	dph, r2
	mov	r7, #1
run_fields:
	mov	r1, dpl
	mov	r2, dph
	mov	a, #<NEXT_ENTRY
	add	a, r7
	mov	dpl, a
	mov	dph, #>NEXT_ENTRY
	movx	a, @dptr
	rr	a
	rr	a			; * 64, of four entries
	mov	r4, a
	mov	r5, #>ADMIN_COMMANDS
	cjne	r7, #1, 1$
	sjmp	2$
1$:	mov	r5, #>IO_COMMANDS
2$:	mov	dph, r5
	mov	dpl, r4
	mov	r6, #64
	clr	a
3$:	movx	@dptr, a
	inc	dptr
	djnz	r6, 3$
4$:	mov	dptr, #field_places	; R6 is 0
	mov	a, r6
	movc	a, @a+dptr
	add	a, r4
	mov	r3, a
	mov	dpl, r1
	mov	dph, r2
	mov	a, r6
	movc	a, @a+dptr
	mov	dph, r5
	mov	dpl, r3
	movx	@dptr, a
	inc	r6
	cjne	r6, #14, 4$
	ljmp	NVME_RUN

; Offsets of the fields in a command: opcode, namespace, PRP 1, dword 10, dword 11.
field_places:
	.db	0, 4, 24, 25, 26, 27, 40, 41, 42, 43, 44, 45, 46, 47
identify_namespace:
	.db	0x06, 1, 0x00, 0x00, 0x20, 0x00, 0, 0, 0, 0, 0, 0, 0, 0
identify_controller:
	.db	0x06, 0, 0x00, 0x00, 0x20, 0x00, 1, 0, 0, 0, 0, 0, 0, 0
smart_log:
	.db	0x02, 0, 0x00, 0x00, 0x20, 0x00, 2, 0, 0x7F, 0, 0, 0, 0, 0
create_completion:
	.db	0x05, 0, 0x00, 0x80, 0x82, 0x00, 1, 0, QUEUE_LEN - 1, 0, 1, 0, 0, 0
create_submission:
	.db	0x01, 0, 0x00, 0x00, 0x82, 0x00, 1, 0, QUEUE_LEN - 1, 0, 1, 0, 1, 0
flush:	.db	0x00, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
; PCIe addresses / 0x1000 of the admin queues and of the I/O queues.
queue_places:
	.db	0x08, 0x00, 0x08, 0x08, 0x08, 0x20, 0x08, 0x28

; Copies four bytes of code at DPTR to the registers at 0xB200 + R3.
put_word_pair:
	mov	r6, #4
1$:	clr	a
	movc	a, @a+dptr
	inc	dptr
	mov	r1, dpl
	mov	r2, dph
	mov	dph, #>ADMIN_QUEUES
	mov	dpl, r3
	movx	@dptr, a
	inc	r3
	mov	dpl, r1
	mov	dph, r2
	djnz	r6, 1$
	ret

; Sends the requests at code DPTR, 13 bytes each: format, address, its upper half, data. 0xFF ends the list. Carry: one
; was refused or not answered. A read's data is at TLP_DATA.
requests:
	clr	a
	movc	a, @a+dptr
	inc	dptr
	mov	r7, a
	inc	a
	clr	c
	jz	9$
	mov	r3, #<TLP_ADDRESS
1$:	clr	a
	movc	a, @a+dptr
	inc	dptr
	mov	r1, dpl
	mov	r2, dph
	mov	dph, #>TLP_ADDRESS
	mov	dpl, r3
	movx	@dptr, a
	mov	dpl, r1
	mov	dph, r2
	inc	r3
	cjne	r3, #<TLP_ADDRESS + 12, 1$
	mov	dptr, #TLP_STATUS
	mov	a, #0x07
	movx	@dptr, a
	mov	dptr, #TLP_FORMAT
	mov	a, r7
	movx	@dptr, a
	mov	dptr, #TLP_ENABLES
	mov	a, #0x0F
	movx	@dptr, a
	mov	dptr, #TLP_FIRE
	movx	@dptr, a
	mov	r6, #0
2$:	mov	dptr, #TLP_STATUS
	movx	a, @dptr
	cjne	r7, #MEMORY_WRITE, 3$
	jb	acc.2, 5$		; a posted request ends once it is sent
3$:	jb	acc.1, 4$
	jb	acc.0, 8$
	djnz	r6, 2$
	sjmp	8$
4$:	mov	dptr, #TLP_COMPLETION
	movx	a, @dptr
	anl	a, #0xE0
	jnz	8$
5$:	mov	dptr, #TLP_STATUS
	mov	a, #0x07
	movx	@dptr, a
	mov	dpl, r1
	mov	dph, r2
	sjmp	requests
8$:	mov	dptr, #TLP_STATUS
	mov	a, #0x07
	movx	@dptr, a
	setb	c
9$:	ret

CONFIG_READ_0	= 0x04
CONFIG_WRITE_0	= 0x44
CONFIG_READ_1	= 0x05
CONFIG_WRITE_1	= 0x45
MEMORY_READ	= 0x00
MEMORY_WRITE	= 0x40
; Numbers the root port's buses 0, 1, up to 2. Then reads the class of the device on bus 1.
to_bus_1:
	.db	CONFIG_WRITE_0, 0, 0, 0, 0x18, 0, 0, 0, 0, 0x00, 0x02, 0x01, 0x00
	.db	CONFIG_READ_1, 1, 0, 0, 0x08, 0, 0, 0, 0, 0, 0, 0, 0
	.db	0xFF
to_bus_2:
	.db	CONFIG_WRITE_1, 1, 0, 0, 0x18, 0, 0, 0, 0, 0x00, 0x02, 0x02, 0x01
	.db	CONFIG_READ_1, 2, 0, 0, 0x08, 0, 0, 0, 0, 0, 0, 0, 0
	.db	0xFF
leave_bus_2:
	.db	CONFIG_WRITE_1, 1, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0, 0
leave_bus_1:
	.db	CONFIG_WRITE_0, 0, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0, 0
	.db	0xFF
; Sets both ports' windows, the drive's BAR, and memory and bus master everywhere. Then CC: stop.
open_way:
	.db	CONFIG_WRITE_0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0x00, 0xD0, 0x00, 0xD0
	.db	CONFIG_WRITE_0, 0, 0, 0, 0x04, 0, 0, 0, 0, 0, 0, 0, 0x06
	.db	CONFIG_WRITE_1, 1, 0, 0, 0x20, 0, 0, 0, 0, 0x00, 0xD0, 0x00, 0xD0
	.db	CONFIG_WRITE_1, 1, 0, 0, 0x04, 0, 0, 0, 0, 0, 0, 0, 0x06
	.db	CONFIG_WRITE_1, 2, 0, 0, 0x10, 0, 0, 0, 0, 0x00, 0xD0, 0x00, 0x00
	.db	CONFIG_WRITE_1, 2, 0, 0, 0x14, 0, 0, 0, 0, 0, 0, 0, 0
	.db	CONFIG_WRITE_1, 2, 0, 0, 0x04, 0, 0, 0, 0, 0, 0, 0, 0x06
	.db	MEMORY_WRITE, 0x00, 0xD0, 0x00, 0x14, 0, 0, 0, 0, 0, 0, 0, 0
	.db	0xFF
; CSTS
ask_status:
	.db	MEMORY_READ, 0x00, 0xD0, 0x00, 0x1C, 0, 0, 0, 0, 0, 0, 0, 0
	.db	0xFF
; AQA, ASQ, ACQ; CC: entries of 16 and 64 bytes, go
set_up:	.db	MEMORY_WRITE, 0x00, 0xD0, 0x00, 0x24, 0, 0, 0, 0, 0, QUEUE_LEN - 1, 0, QUEUE_LEN - 1
	.db	MEMORY_WRITE, 0x00, 0xD0, 0x00, 0x28, 0, 0, 0, 0, 0x00, 0x80, 0x00, 0x00
	.db	MEMORY_WRITE, 0x00, 0xD0, 0x00, 0x2C, 0, 0, 0, 0, 0, 0, 0, 0
	.db	MEMORY_WRITE, 0x00, 0xD0, 0x00, 0x30, 0, 0, 0, 0, 0x00, 0x80, 0x80, 0x00
	.db	MEMORY_WRITE, 0x00, 0xD0, 0x00, 0x34, 0, 0, 0, 0, 0, 0, 0, 0
	.db	MEMORY_WRITE, 0x00, 0xD0, 0x00, 0x14, 0, 0, 0, 0, 0x00, 0x46, 0x00, 0x01
	.db	0xFF

; --- E6: an NVMe admin command, Identify (CDB byte 3 is CNS) or Get Log Page of SMART. The CDB has the layout that
; smartmontools' sntasmedia sends.
	.org	NVME_ADMIN
nvme_admin:
	mov	r5, #3
	lcall	cdb_byte
	mov	r6, a
	mov	r5, #1
	lcall	cdb_byte
	mov	dptr, #identify_namespace
	cjne	a, #0x06, 1$
	mov	a, r6
	jz	2$
	mov	dptr, #identify_controller
	dec	a
	jz	2$
	ljmp	invalid_field
1$:	cjne	a, #0x02, 3$
	mov	dptr, #smart_log
	cjne	r6, #0x02, 3$
2$:	clr	a
	movc	a, @a+dptr
	mov	TEMP + 1, a
	lcall	admin
	jc	4$
	mov	r4, #0
	mov	r5, #0
	mov	r6, #0x02
	mov	r7, #0
	mov	a, TEMP + 1
	cjne	a, #0x06, 5$
	mov	r6, #0x10
5$:	mov	r0, #LENGTH
	lcall	STORE_DWORD
	lcall	host_length
	mov	r7, #1			; from the SRAM
	ljmp	BEGIN_REPLY
3$:	ljmp	invalid_field
4$:	mov	r7, #0x04		; internal target failure
	mov	r5, #0x44
	mov	r3, #0x00
	lcall	SET_SENSE
	mov	r7, #ANSWER
	ret
