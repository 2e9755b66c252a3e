/* A firmware for the ASM2464PD in C, for SDCC: docs/firmware-authors.md builds, runs and flashes it.
 *
 * It enumerates as open firmware does (vendor-specific class, ADD1:0001, a product that begins with "custom"), and has
 * these vendor requests:
 *   E4 in   wLength bytes of XDATA from wValue
 *   E5 out  wIndex's low byte into XDATA at wValue
 *   F0      one PCIe request, and its completion
 *   A0 in   CRC-16 (CCITT) of wIndex bytes of XDATA from wValue: two bytes, high byte first
 * Keep E4 and E5 in your own firmware: with them `asmpatch flash` and `restore` write the flash through the chip's
 * registers.
 *
 * All work is done in the interrupt INT0; main only starts up. docs/lab/chip.md describes the registers.
 */
#include <stdint.h>

#define REG(at) (*(volatile __xdata uint8_t *)(at))

/* USB: the link and the control endpoint. */
#define USB_ADDRESS REG(0x9090)
#define EP0_EVENTS REG(0x9091) /* write 1 clears */
#define EP0_COMMAND REG(0x9092)
#define BULK_EVENTS REG(0x9093)
#define BULK_ARM REG(0x9094)
#define BULK_HALTS REG(0x9006)
#define EP0_LENGTH_HIGH REG(0x9003)
#define EP0_LENGTH_LOW REG(0x9004)
#define USB_SPEED REG(0x9100)
#define USB_EVENTS REG(0x9101)
#define SETUP ((volatile __xdata uint8_t *)0x9104)
#define USB_CONTROL REG(0x91C0)
#define LINK_EVENTS REG(0x91D1)
#define BUS_EVENTS_0 REG(0x9300)
#define BUS_EVENTS_1 REG(0x9301)
#define BUS_EVENTS_2 REG(0x9302)
#define EP0_BUFFER ((volatile __xdata uint8_t *)0x9E00)
#define INT_ENABLES REG(0xC800)
#define PCIE_LANES REG(0xC659)
#define PCIE_TRAINING REG(0xE764)
/* PCIe: one request at a time. */
#define TLP_HEADER REG(0xB210)
#define TLP_ENABLES REG(0xB217)
#define TLP_ADDRESS ((volatile __xdata uint8_t *)0xB218) /* two dwords and the data, each big-endian */
#define TLP_DATA ((volatile __xdata uint8_t *)0xB220)
#define TLP_COMPLETION ((volatile __xdata uint8_t *)0xB22A)
#define TLP_FIRE REG(0xB254)
#define TLP_STATUS REG(0xB296)

enum { EVENT_SETUP = 0x01, EVENT_OUT_OFFERED = 0x02, EVENT_OUT_TAKEN = 0x04, EVENT_IN_WANTED = 0x08, EVENT_STATUS = 0x10 };
enum { STALL = 1, TAKE_OUT = 2, SEND = 4, FINISH = 8 };
enum { NO_ADDRESS = 0xFF };

__sfr __at(0x93) XDATA_PAGE;
__sfr __at(0x96) CODE_BANK;
__sbit __at(0xA8) INT0_ENABLE;
__sbit __at(0xAF) INTERRUPTS;

/* asmpatch reads an image's version here. */
static const __code __at(0x0200) uint8_t version[6] = {0x26, 0x11, 0x22, 0x00, 0x00, 0x10};

static const __code uint8_t device_super[] = {18, 1, 0x20, 3, 0, 0, 0, 9, 0xD1, 0xAD, 1, 0, 1, 0, 1, 2, 3, 1};
static const __code uint8_t device_high[] = {18, 1, 0x10, 2, 0, 0, 0, 64, 0xD1, 0xAD, 1, 0, 1, 0, 1, 2, 3, 1};
static const __code uint8_t qualifier[] = {10, 6, 0x10, 2, 0, 0, 0, 64, 1, 0};
static const __code uint8_t configuration_super[] = {
	9, 2, 44, 0, 1, 1, 0, 0xC0, 0,
	9, 4, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0,
	7, 5, 0x81, 2, 0, 4, 0, 6, 0x30, 15, 0, 0, 0,
	7, 5, 0x02, 2, 0, 4, 0, 6, 0x30, 15, 0, 0, 0,
};
static const __code uint8_t configuration_high[] = {
	9, 2, 32, 0, 1, 1, 0, 0xC0, 0,
	9, 4, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0,
	7, 5, 0x81, 2, 0, 2, 0,
	7, 5, 0x02, 2, 0, 2, 0,
};
static const __code uint8_t bos[] = {
	5, 15, 22, 0, 2,
	7, 16, 2, 2, 0, 0, 0,
	10, 16, 3, 0, 14, 0, 1, 10, 0xFF, 7,
};
static const __code char *const __code texts[] = {"asmpatch", "custom sample", "000000000000"};

static uint8_t configuration;
static uint8_t alternate;
static uint8_t new_address;
static uint8_t reply_length;
static uint8_t wants_tlp;

static void stall(void) {
	EP0_COMMAND = STALL;
}

/* Sets the length of the reply in EP0_BUFFER, of which the host gets at most wLength. */
static void reply(uint8_t length) {
	reply_length = SETUP[7] == 0 && SETUP[6] < length ? SETUP[6] : length;
}

static void reply_table(const __code uint8_t *bytes, uint8_t length) {
	uint8_t at;
	for (at = 0; at < length; at++)
		EP0_BUFFER[at] = bytes[at];
	reply(length);
}

static void reply_text(uint8_t index) {
	const __code char *text = texts[index];
	uint8_t length = 2;
	for (; *text; text++) {
		EP0_BUFFER[length++] = *text;
		EP0_BUFFER[length++] = 0;
	}
	EP0_BUFFER[0] = length;
	EP0_BUFFER[1] = 3;
	reply(length);
}

static void get_descriptor(void) {
	uint8_t is_super = USB_SPEED & 2;
	switch (SETUP[3]) {
	case 1:
		reply_table(is_super ? device_super : device_high, 18);
		break;
	case 2:
		if (is_super)
			reply_table(configuration_super, sizeof configuration_super);
		else
			reply_table(configuration_high, sizeof configuration_high);
		break;
	case 3:
		if (SETUP[2] == 0) {
			EP0_BUFFER[0] = 4;
			EP0_BUFFER[1] = 3;
			EP0_BUFFER[2] = 0x09;
			EP0_BUFFER[3] = 0x04;
			reply(4);
		} else if (SETUP[2] <= 3) {
			reply_text(SETUP[2] - 1);
		} else {
			stall();
		}
		break;
	case 6:
		if (is_super)
			stall();
		else
			reply_table(qualifier, sizeof qualifier);
		break;
	case 15:
		reply_table(bos, sizeof bos);
		break;
	default:
		stall();
	}
}

static void reply_byte(uint8_t byte) {
	EP0_BUFFER[0] = byte;
	reply(1);
}

/* Clears all halts and armed packets. */
static void reset_endpoints(void) {
	BULK_HALTS &= 0x7E;
	BULK_ARM = 0x09;
}

/* The state after a port reset: no address, no configuration. */
static void forget(void) {
	wants_tlp = 0;
	new_address = NO_ADDRESS;
	configuration = 0;
	alternate = 0;
	USB_ADDRESS = 0;
	reset_endpoints();
}

/* The bit of BULK_HALTS for the request's endpoint; 0 for the control endpoint, 0xFF if it doesn't exist. */
static uint8_t halt_bit(void) {
	switch (SETUP[4]) {
	case 0x00:
	case 0x80:
		return 0;
	case 0x81:
		return 0x01;
	case 0x02:
		return 0x80;
	default:
		return 0xFF;
	}
}

static void get_status(void) {
	uint8_t status = SETUP[0] == 0x80; /* self-powered */
	if (SETUP[0] == 0x82) {
		uint8_t bit = halt_bit();
		if (bit == 0xFF) {
			stall();
			return;
		}
		status = (BULK_HALTS & bit) != 0;
	}
	EP0_BUFFER[0] = status;
	EP0_BUFFER[1] = 0;
	reply(2);
}

static void change_feature(uint8_t is_set) {
	uint8_t bit;
	if (SETUP[0] != 0x02)
		return; /* U1, U2 and function suspend have no effect */
	bit = halt_bit();
	if (bit == 0xFF)
		stall();
	else if (is_set)
		BULK_HALTS |= bit;
	else
		BULK_HALTS &= ~bit;
}

static void standard_request(void) {
	switch (SETUP[1]) {
	case 0:
		get_status();
		break;
	case 1:
	case 3:
		change_feature(SETUP[1] == 3);
		break;
	case 5:
		new_address = SETUP[2];
		break;
	case 6:
		get_descriptor();
		break;
	case 8:
		reply_byte(configuration);
		break;
	case 9:
		if (SETUP[2] > 1) {
			stall();
			break;
		}
		configuration = SETUP[2];
		alternate = 0;
		USB_ADDRESS = (USB_ADDRESS & 0x7F) | (configuration << 7);
		reset_endpoints();
		break;
	case 10:
		reply_byte(alternate);
		break;
	case 11:
		if (SETUP[2] != 0 || SETUP[4] != 0)
			stall();
		else
			reset_endpoints();
		break;
	case 48: /* SET_SEL and SET_ISOCH_DELAY have no effect */
	case 49:
		break;
	default:
		stall();
	}
}

static uint16_t crc_byte(uint16_t crc, uint8_t byte) {
	uint8_t bit;
	crc ^= (uint16_t)byte << 8;
	for (bit = 0; bit < 8; bit++)
		crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
	return crc;
}

static uint16_t crc_xdata(const volatile __xdata uint8_t *at, uint16_t length) {
	uint16_t crc = 0xFFFF;
	for (; length; length--)
		crc = crc_byte(crc, *at++);
	return crc;
}

static void xdata_read(const volatile __xdata uint8_t *at) {
	uint8_t most = USB_SPEED & 2 ? 255 : 64;
	uint8_t length = SETUP[7] || SETUP[6] > most ? most : SETUP[6];
	uint8_t index;
	for (index = 0; index < length; index++) {
		uint8_t byte;
		XDATA_PAGE = SETUP[5] & 1;
		byte = at[index];
		XDATA_PAGE = 0;
		EP0_BUFFER[index] = byte;
	}
	reply_length = length;
}

/* Three dwords arrived, little-endian. */
static void tlp_send(void) {
	uint8_t at;
	for (at = 0; at < 12; at++)
		TLP_ADDRESS[at ^ 3] = EP0_BUFFER[at];
	TLP_STATUS = 7;
	TLP_FIRE = 0x0F;
}

/* Data, the completion's two header bytes, 0, and 0 for done or FF. */
static void tlp_reply(void) {
	uint8_t at;
	for (at = 0; at < 4; at++)
		EP0_BUFFER[at] = TLP_DATA[at ^ 3];
	EP0_BUFFER[4] = TLP_COMPLETION[0];
	EP0_BUFFER[5] = TLP_COMPLETION[1];
	EP0_BUFFER[6] = 0;
	EP0_BUFFER[7] = TLP_STATUS & 2 ? 0 : 0xFF;
	reply(8);
}

static void vendor_request(void) {
	volatile __xdata uint8_t *at = (volatile __xdata uint8_t *)((uint16_t)SETUP[3] << 8 | SETUP[2]);
	uint16_t index = (uint16_t)SETUP[5] << 8 | SETUP[4];
	uint8_t is_read = SETUP[0] == 0xC0;
	switch (SETUP[1]) {
	case 0xA0:
		if (is_read) {
			uint16_t crc = crc_xdata(at, index);
			EP0_BUFFER[0] = crc >> 8;
			EP0_BUFFER[1] = crc;
			reply(2);
			return;
		}
		break;
	case 0xE4:
		if (is_read) {
			xdata_read(at);
			return;
		}
		break;
	case 0xE5:
		if (!is_read) {
			XDATA_PAGE = SETUP[5] & 1;
			*at = (uint8_t)index;
			XDATA_PAGE = 0;
			return;
		}
		break;
	case 0xF0:
		if (is_read) {
			tlp_reply();
			return;
		}
		if (index == 0) {
			TLP_HEADER = SETUP[2];
			TLP_ENABLES = SETUP[3];
			wants_tlp = 1;
			return;
		}
		break;
	}
	stall();
}

static void setup_came(void) {
	EP0_EVENTS = EVENT_SETUP;
	reply_length = 0;
	wants_tlp = 0;
	new_address = NO_ADDRESS;
	switch (SETUP[0] & 0x60) {
	case 0x00:
		standard_request();
		break;
	case 0x40:
		vendor_request();
		break;
	default:
		stall();
	}
}

/* All replies fit in a packet. If the host wants more, an empty packet ends the read. */
static void in_wanted(void) {
	EP0_LENGTH_HIGH = 0;
	EP0_LENGTH_LOW = reply_length;
	reply_length = 0;
	EP0_COMMAND = SEND;
	while (EP0_COMMAND & SEND)
		;
	EP0_EVENTS = EVENT_IN_WANTED;
}

static void out_taken(void) {
	if (wants_tlp) {
		wants_tlp = 0;
		tlp_send();
	}
	EP0_EVENTS = EVENT_OUT_TAKEN;
}

/* A new address takes effect after the status stage, which still uses the old one. */
static void status_stage(void) {
	EP0_COMMAND = FINISH;
	EP0_EVENTS = EVENT_STATUS;
	if (new_address != NO_ADDRESS) {
		USB_ADDRESS = (USB_ADDRESS & 0x80) | new_address;
		new_address = NO_ADDRESS;
	}
}

static void ep0_event(void) {
	uint8_t events = EP0_EVENTS;
	if (events & EVENT_SETUP)
		setup_came();
	else if (events & EVENT_IN_WANTED)
		in_wanted();
	else if (events & EVENT_OUT_OFFERED) {
		EP0_EVENTS = EVENT_OUT_OFFERED;
		EP0_COMMAND = TAKE_OUT;
	} else if (events & EVENT_OUT_TAKEN)
		out_taken();
	else if (events & EVENT_STATUS)
		status_stage();
}

/* Writing the active bits back clears them. INT0 is a level: it repeats while any bit is active. */
void usb_interrupt(void) __interrupt(0) {
	uint8_t link = LINK_EVENTS;
	uint8_t bus = BUS_EVENTS_1;
	uint8_t other = BUS_EVENTS_0;
	LINK_EVENTS = link;
	BUS_EVENTS_1 = bus;
	BUS_EVENTS_0 = other;
	BUS_EVENTS_2 = BUS_EVENTS_2;
	if ((link & 0x01) || (bus & 0x80))
		forget();
	BULK_EVENTS = BULK_EVENTS;
	if (USB_EVENTS & 0x02)
		ep0_event();
}

void main(void) {
	CODE_BANK = 0;
	XDATA_PAGE = 0;
	forget();
	PCIE_TRAINING = 0x1C; /* trains the link, once its lanes are on */
	PCIE_LANES |= 0x01;
	USB_CONTROL &= ~0x02;
	INT_ENABLES = 0x01;
	INT0_ENABLE = 1;
	INTERRUPTS = 1;
	for (;;)
		;
}
