; Bank 0: what the unit says of itself. USB 3.2, section 9.6; UAS-3, clause 5.

device_descriptor:
	.db	18, 0x01, 0x20, 0x03	; USB 3.2
	.db	0, 0, 0			; class: the interface's
	.db	9			; packets of 2^9 bytes on the control endpoint
	.db	0, 0, 0, 0, 0, 0	; idVendor, idProduct, bcdDevice
	.db	2, 3, 1			; strings: manufacturer, product, serial number
	.db	1			; configurations

qualifier_descriptor:
	.db	10, 0x06, 0x10, 0x02, 0, 0, 0, 64, 1, 0

languages:
	.db	4, 0x03, 0x09, 0x04	; US English

bos_descriptor:
	.db	5, 0x0F
	.dw	0x1600			; total length 22
	.db	2			; capabilities
	; USB 2.0 extension: link power management
	.db	7, 0x10, 0x02, 0x02, 0, 0, 0
	; SuperSpeed: full, high and super; all functions from full on; U1 within 10 us, U2 within 2,047 us
	.db	10, 0x10, 0x03, 0, 0x0E, 0, 1, 10, 0xFF, 0x07
bos_end:

; One configuration, self-powered. Interface 0, alternate 0: mass storage, SCSI, Bulk-Only; alternate 1: UAS. What
; differs between the speeds is left to the code: packets' size, and the companions of SuperSpeed.
;
; An entry here: a descriptor's length, and the descriptor; or 0, and a bulk pipe as four bytes: the endpoint's address,
; packets in a burst - 1, the exponent of its streams, its UAS pipe's ID (0 over Bulk-Only). FF ends the list.
configuration_list:
	.db	9, 9, 0x02, 0, 0, 1, 1, 0, 0xC0, 0
	.db	9, 9, 0x04, 0, 0, 2, 0x08, 0x06, 0x50, 0
	.db	0, 0x81, 15, 0, 0
	.db	0, 0x02, 15, 0, 0
	.db	9, 9, 0x04, 0, 1, 4, 0x08, 0x06, 0x62, 0
	.db	0, 0x04, 0, 0, 1	; commands
	.db	0, 0x83, 0, 5, 2	; status, with 2^5 streams
	.db	0, 0x81, 15, 5, 3	; data to the host
	.db	0, 0x02, 15, 5, 4	; data from it
	.db	0xFF
