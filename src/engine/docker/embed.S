/* The bytes of recipe.h. RECIPE_TAR is the path of the tar. */
#include "../../base/embed.inc"

    embed recipe_tar, RECIPE_TAR
