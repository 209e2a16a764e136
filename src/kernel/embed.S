/* The bytes of source.h. KERNEL_SOURCE is the path of kernel.py. */
#include "../base/embed.inc"

    embed kernel_source, KERNEL_SOURCE
