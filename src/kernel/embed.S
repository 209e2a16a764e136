/* The bytes of source.h. Not by `ld -b binary`, which forgets to say that no executable stack is
 * wanted. KERNEL_SOURCE is the path of kernel.py. */
    .section .rodata
    .global kernel_source
    .type kernel_source, %object
kernel_source:
    .incbin KERNEL_SOURCE
kernel_source_end:
    .size kernel_source, kernel_source_end - kernel_source

    .balign 8
    .global kernel_source_len
    .type kernel_source_len, %object
kernel_source_len:
#if __SIZEOF_SIZE_T__ == 8
    .quad kernel_source_end - kernel_source
#else
    .long kernel_source_end - kernel_source
#endif
    .size kernel_source_len, __SIZEOF_SIZE_T__

    .section .note.GNU-stack, "", %progbits
