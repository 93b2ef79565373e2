/* host/report/device_line.h: prints the device in one line, at the start of a run and of a profile. */
#ifndef WEFT_HOST_REPORT_DEVICE_LINE_H
#define WEFT_HOST_REPORT_DEVICE_LINE_H

#include <stdio.h>
#include <weft/device.h>

void weft_device_line_print(const weft_device_info *info, FILE *to);

#endif
