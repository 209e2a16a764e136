/* The bytes of image.h. Assembled by hand and not by `ld -b binary`, which forgets to say that no
 * executable stack is wanted. AGENT_IMAGE and MOULD_IMAGE are the paths of the programs. */
#if __SIZEOF_SIZE_T__ == 8
#define SIZE .quad
#else
#define SIZE .long
#endif

    .macro image name, path
    .section .rodata
    .balign 16
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
    SIZE \name\()_end - \name
    .size \name\()_len, __SIZEOF_SIZE_T__
    .endm

    image agent_image, AGENT_IMAGE
    image mould_image, MOULD_IMAGE

    .section .note.GNU-stack, "", %progbits
