/* What cppcheck has to know of headers that it does not read: loops that are macros. */
#define LIST_FOREACH(entry, head, link)                                                            \
    for ((entry) = (head)->lh_first; (entry); (entry) = (entry)->link.le_next)
#define TAILQ_FOREACH(entry, head, link)                                                           \
    for ((entry) = (head)->tqh_first; (entry); (entry) = (entry)->link.tqe_next)
#define json_array_foreach(array, i, item)                                                         \
    for ((i) = 0; (i) < json_array_size(array) && ((item) = json_array_get(array, i)); (i)++)
#define json_object_foreach(object, key, item)                                                     \
    for ((key) = json_object_iter_key(json_object_iter(object));                                   \
         (key) && ((item) = json_object_get(object, key)); (key) = next_key(object, key))
