/* host/report/device_line.h: the device in a line, as a run and a profile begin with. */
#ifndef WEFT_HOST_REPORT_DEVICE_LINE_H
#define WEFT_HOST_REPORT_DEVICE_LINE_H

#include <stdio.h>
#include <weft/device.h>

void weft_device_line_print(const weft_device_info *info, FILE *to);

#endif
