/* The bytes of recipe.h. Not by `ld -b binary`, which forgets to say that no executable stack is
 * wanted. RECIPE_TAR is the path of the tar. */
    .section .rodata
    .global recipe_tar
    .type recipe_tar, %object
recipe_tar:
    .incbin RECIPE_TAR
recipe_tar_end:
    .size recipe_tar, recipe_tar_end - recipe_tar

    .balign 8
    .global recipe_tar_len
    .type recipe_tar_len, %object
recipe_tar_len:
#if __SIZEOF_SIZE_T__ == 8
    .quad recipe_tar_end - recipe_tar
#else
    .long recipe_tar_end - recipe_tar
#endif
    .size recipe_tar_len, __SIZEOF_SIZE_T__

    .section .note.GNU-stack, "", %progbits
