#!/usr/bin/env python3
"""set_offload.py DEVICE tso|gro 0|1: what `ethtool -K` does."""

import array
import fcntl
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
COMMANDS = {"tso": 0x1F, "gro": 0x2C}  # ETHTOOL_STSO, ETHTOOL_SGRO

device, offload, value = sys.argv[1:]
argument = array.array("B", struct.pack("II", COMMANDS[offload], int(value)))
address, _ = argument.buffer_info()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    request = struct.pack("16sP16x", device.encode(), address)
    fcntl.ioctl(any_socket, SIOCETHTOOL, request)
