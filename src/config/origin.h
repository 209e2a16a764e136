/*
 * origin: where a value came from. Private to config.
 */
#ifndef BELLJAR_CONFIG_ORIGIN_H
#define BELLJAR_CONFIG_ORIGIN_H

/* Weakest first: a value replaces one of the same or a weaker source. */
enum config_source {
    FROM_DEFAULT,
    FROM_PROFILE, /* the default of the profile */
    FROM_PROGRAM,
    FROM_FOREIGN, /* the file of the program that the profile replaces */
    FROM_FILE,
    FROM_ALIAS,
    FROM_VARIABLE,
    FROM_FLAG,
};

struct config_origin {
    enum config_source source;
    char *where; /* file and line, variable or flag; NULL for the default */
};

/* For people: "default", "flag --http". Owned by the caller. */
char *origin_text(const struct config_origin *origin);
/* For programs: "default", "file", "environment", "flag", "program",
 * "profile". */
const char *origin_name(const struct config_origin *origin);

#endif
