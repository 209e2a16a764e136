/* The bytes of image.h. ZYGOTE_LIBRARY and ZYGOTE_SOURCE are paths. */
    .section .rodata

    .macro embed name, path
    .global \name
    .type \name, %object
\name:
    .incbin "\path"
\name\()_end:
    .size \name, \name\()_end - \name

    .balign 8
    .global \name\()_len
    .type \name\()_len, %object
\name\()_len:
#if __SIZEOF_SIZE_T__ == 8
    .quad \name\()_end - \name
#else
    .long \name\()_end - \name
#endif
    .size \name\()_len, __SIZEOF_SIZE_T__
    .endm

    embed zygote_library, ZYGOTE_LIBRARY
    embed zygote_source, ZYGOTE_SOURCE

    .section .note.GNU-stack, "", %progbits
