/* The bytes of image.h. ZYGOTE_LIBRARY and ZYGOTE_SOURCE are paths. */
#include "../base/embed.inc"

    embed zygote_library, ZYGOTE_LIBRARY
    embed zygote_source, ZYGOTE_SOURCE
