/* The bytes of image.h. AGENT_IMAGE and MOULD_IMAGE are the paths of the programs. */
#include "../base/embed.inc"

    embed agent_image, AGENT_IMAGE
    embed mould_image, MOULD_IMAGE
