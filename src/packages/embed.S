/* The bytes of source.h; see src/kernel/embed.S. INSTALLER_SOURCE is the path of installer.py. */
    .section .rodata
    .global installer_source
    .type installer_source, %object
installer_source:
    .incbin INSTALLER_SOURCE
installer_source_end:
    .size installer_source, installer_source_end - installer_source

    .balign 8
    .global installer_source_len
    .type installer_source_len, %object
installer_source_len:
#if __SIZEOF_SIZE_T__ == 8
    .quad installer_source_end - installer_source
#else
    .long installer_source_end - installer_source
#endif
    .size installer_source_len, __SIZEOF_SIZE_T__

    .section .note.GNU-stack, "", %progbits
