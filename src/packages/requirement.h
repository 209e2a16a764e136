/*
 * requirement: what a client may ask to have installed. A part of PEP 508: a name, extras in brackets,
 * version specifiers. No URL, path, option or environment marker: what passes here is safe to stand on
 * an installer's command line, and says nothing but which package is wanted. Pure.
 */
#ifndef BELLJAR_PACKAGES_REQUIREMENT_H
#define BELLJAR_PACKAGES_REQUIREMENT_H

#include "base/err.h"

enum { REQUIREMENT_MAX = 200 }; /* bytes of one */

/* The normal form ("Foo_Bar [B,a] >= 1, <2" is "foo-bar[a,b]<2,>=1"), owned by the caller; or NULL and
 * err, which quotes the text and says what is wrong with it. */
char *requirement_normalise(const char *text, struct err *err);

/* All of them in normal form, sorted, each once; or NULL and err. Free with requirements_free(). */
char **requirements_normalise(const char *const *texts, size_t n, size_t *ret_n, struct err *err);
void requirements_free(char **requirements, size_t n);

#endif
