/*
 * runtime: what sandboxes must see of the host so that the interpreter of the operator's environment starts
 * there. An environment's bin/python3 is often a link to another prefix, which has the standard library, too
 * (venv, uv, conda); scripts and libraries name the path at which they were installed.
 */
#ifndef BELLJAR_ENGINE_NATIVE_RUNTIME_H
#define BELLJAR_ENGINE_NATIVE_RUNTIME_H

#include "base/err.h"

enum { RUNTIME_BASES_MAX = 2 }; /* where bin/python3 leads to, and `home` of pyvenv.cfg */

/* Paths are absolute; but for the links' targets they have no link in them. */
struct runtime {
    char *dir; /* shown at ENGINE_RUNTIME; NULL: there is no runtime */
    /* Prefixes outside of `dir` and of the host's programs, shown at their own paths. */
    char *bases[RUNTIME_BASES_MAX];
    size_t n_bases;
    char *python; /* the program, if it lies in one of these; else NULL */
    /* What to make in sandboxes, so that names that the environment has for these lead there. */
    struct runtime_link {
        char *path, *target;
    } * links;
    size_t n_links;
    bool foreign; /* the host's programs are not those that sandboxes see */
};

/* "", NULL: there is none, of both. Refuses a base that is no interpreter's prefix, or that would show more of the host than
 * one: err names the option and says what can be done. */
int runtime_find(const char *path, const char *rootfs, struct runtime *ret, struct err *err);
void runtime_done(struct runtime *runtime);

/* Whether each sandbox has something of its own there, so that nothing of the host's can be shown. */
bool runtime_is_hidden(const char *path);

#endif
