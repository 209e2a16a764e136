/* The bytes of image.h. Assembled by hand and not by `ld -b binary`, which forgets to say that no
 * executable stack is wanted. AGENT_IMAGE is the path of the agent. */
    .section .rodata
    .balign 16
    .global agent_image
    .type agent_image, %object
agent_image:
    .incbin AGENT_IMAGE
agent_image_end:
    .size agent_image, agent_image_end - agent_image

    .balign 8
    .global agent_image_len
    .type agent_image_len, %object
agent_image_len:
#if __SIZEOF_SIZE_T__ == 8
    .quad agent_image_end - agent_image
#else
    .long agent_image_end - agent_image
#endif
    .size agent_image_len, __SIZEOF_SIZE_T__

    .section .note.GNU-stack, "", %progbits
