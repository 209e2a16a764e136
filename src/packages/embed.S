/* The bytes of source.h. INSTALLER_SOURCE is the path of installer.py. */
#include "../base/embed.inc"

    embed installer_source, INSTALLER_SOURCE
