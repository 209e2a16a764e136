/*
 * input_required: the stateless era, where a call that needs input ends with questions and is made
 * again with the answers. Most tools here are rows: which questions, whether state travels along,
 * what to say when all is answered.
 */
#include "fixture.h"

#define ASK_STRING(field)                                                                          \
    "\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"" field                            \
    "\":{\"type\":\"string\"}},\"required\":[\"" field "\"]}"
#define ASK_OK                                                                                     \
    "\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"ok\":{\"type\":\"boolean\"}},"     \
    "\"required\":[\"ok\"]}"
#define ASK_MODEL(text)                                                                            \
    "{\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"" text            \
    "\"}}],\"maxTokens\":100}"

/* --- questions ------------------------------------------------------------------------------ */

struct question {
    const char *key; /* NULL ends a table */
    const char *method;
    const char *params; /* JSON */
    const char *answer; /* the member that a usable answer has: "content" or "roots" */
};

static const struct question ask_name[] = {
    { "user_name", "elicitation/create",
      "{\"message\":\"What is your name?\"," ASK_STRING("name") "}", "content" },
    { NULL },
};
static const struct question ask_capital[] = {
    { "capital_question", "sampling/createMessage", ASK_MODEL("What is the capital of France?"),
      "content" },
    { NULL },
};
static const struct question ask_roots[] = {
    { "client_roots", "roots/list", "{}", "roots" },
    { NULL },
};
static const struct question ask_confirm[] = {
    { "confirm", "elicitation/create", "{\"message\":\"Please confirm.\"," ASK_OK "}", "content" },
    { NULL },
};
static const struct question ask_everything[] = {
    { "user_name", "elicitation/create",
      "{\"message\":\"What is your name?\"," ASK_STRING("name") "}", "content" },
    { "greeting", "sampling/createMessage", ASK_MODEL("Generate a greeting."), "content" },
    { "client_roots", "roots/list", "{}", "roots" },
    { NULL },
};
static const struct question ask_context[] = {
    { "user_context", "elicitation/create",
      "{\"message\":\"What context should the prompt use?\"," ASK_STRING("context") "}",
      "content" },
    { NULL },
};
static const struct question ask_step1[] = {
    { "step1", "elicitation/create",
      "{\"message\":\"Step 1: What is your name?\"," ASK_STRING("name") "}", "content" },
    { NULL },
};
static const struct question ask_step2[] = {
    { "step2", "elicitation/create",
      "{\"message\":\"Step 2: What is your favorite color?\"," ASK_STRING("color") "}", "content" },
    { NULL },
};

static bool answered(const struct mcp_call *call, const struct question *question)
{
    return json_object_get(mcp_call_input(call, question->key), question->answer);
}

/* What the user wrote in a form, or a stand-in. */
static const char *form_text(const struct mcp_call *call, const char *key, const char *field)
{
    const char *text = json_str(json_object_get(mcp_call_input(call, key), "content"), field);

    return text ? text : "(unknown)";
}

/* Did the user close a form without sending it? */
static bool refused(const struct mcp_call *call, const struct question *question)
{
    const char *action = json_str(mcp_call_input(call, question->key), "action");

    return action && !str_eq(action, "accept");
}

/* Adds one question, or ends the call because the client cannot answer such. */
static bool need(struct mcp_call *call, const struct question *question)
{
    if (mcp_call_need(call, question->key, question->method, json_literal(question->params)))
        return true;
    auto_free char *capability = xstrndup(question->method, strcspn(question->method, "/"));
    mcp_call_missing_capability(call, capability);
    return false;
}

/* Ends the call if a question is open: with the open ones, and `state` (JSON, NULL: none) to come
 * back with the answers. False: the call goes on. Answers that come without their state prove
 * nothing: then all is asked again. */
static bool ask_open(struct mcp_call *call, const struct question *questions, const char *state)
{
    bool again = state && !mcp_call_state(call);
    bool open = false;

    for (const struct question *q = questions; q->key; q++) {
        if (refused(call, q)) {
            mcp_call_fail(call, "The user did not answer \"%s\".", q->key);
            return true;
        }
        if (answered(call, q) && !again)
            continue;
        if (!need(call, q))
            return true;
        open = true;
    }
    if (open)
        mcp_call_ask(call, state ? json_literal(state) : NULL);
    return open;
}

/* --- tools and a prompt that ask once ------------------------------------------------------- */

struct flow {
    const struct question *questions;
    const char *state; /* JSON, or NULL */
    void (*answer)(struct mcp_call *call);
};

static void answer_name(struct mcp_call *call)
{
    mcp_call_add(call, mcp_textf("Hello, %s!", form_text(call, "user_name", "name")));
}

static void answer_capital(struct mcp_call *call)
{
    const json_t *sample = mcp_call_input(call, "capital_question");
    const char *text = json_str(json_object_get(sample, "content"), "text");

    mcp_call_add(call, mcp_textf("The model says: %s", text ? text : "(nothing)"));
}

static void answer_roots(struct mcp_call *call)
{
    const json_t *roots = json_object_get(mcp_call_input(call, "client_roots"), "roots");
    size_t i;
    const json_t *root;

    mcp_call_add(call, mcp_textf("The client has %zu roots.", json_array_size(roots)));
    json_array_foreach(roots, i, root)
    {
        const char *uri = json_str(root, "uri");
        mcp_call_add(call, mcp_textf("%s", uri ? uri : "(no URI)"));
    }
}

static void answer_state(struct mcp_call *call)
{
    mcp_call_add(call, mcp_textf("state-ok: the state came back unchanged"));
}

static void answer_everything(struct mcp_call *call)
{
    answer_name(call);
    answer_roots(call);
}

static void answer_context(struct mcp_call *call)
{
    mcp_call_add_message(
        call, "user",
        mcp_textf("Use this context: %s", form_text(call, "user_context", "context")));
}

static const struct flow flow_name = { ask_name, NULL, answer_name };
static const struct flow flow_capital = { ask_capital, NULL, answer_capital };
static const struct flow flow_roots = { ask_roots, NULL, answer_roots };
static const struct flow flow_state = { ask_confirm, "{\"kind\":\"request-state\"}", answer_state };
static const struct flow flow_tampered = { ask_confirm, "{\"kind\":\"tampered\"}", answer_state };
static const struct flow flow_everything = { ask_everything, "{\"kind\":\"multiple\"}",
                                             answer_everything };
static const struct flow flow_context = { ask_context, NULL, answer_context };

static void flow_run(struct mcp_call *call, const struct flow *flow)
{
    if (ask_open(call, flow->questions, flow->state))
        return;
    flow->answer(call);
    mcp_call_finish(call);
}

static void call_flow(struct mcp_call *call, const void *args, void *data)
{
    (void)args;
    flow_run(call, data);
}

static void get_flow(struct mcp_call *call, const json_t *args, void *data)
{
    (void)args;
    flow_run(call, data);
}

/* --- the others ----------------------------------------------------------------------------- */

/* Two rounds; what the first brought travels in the state of the second. */
static void call_multi_round(struct mcp_call *call, const void *args, void *data)
{
    const char *name = json_str(mcp_call_state(call), "name");

    (void)args, (void)data;
    if (!name) {
        if (ask_open(call, ask_step1, "{\"round\":1}"))
            return;
        json_t *state = json_literal("{\"round\":2}");
        json_put_str(state, "name", form_text(call, "step1", "name"));
        if (need(call, &ask_step2[0]))
            mcp_call_ask(call, state);
        else
            json_decref(state);
        return;
    }
    if (ask_open(call, ask_step2, NULL))
        return;
    mcp_call_add(call, mcp_textf("%s likes %s.", name, form_text(call, "step2", "color")));
    mcp_call_finish(call);
}

/* Asks only what this client can answer. */
static void call_capabilities(struct mcp_call *call, const void *args, void *data)
{
    static const struct question *const kinds[] = { ask_name, ask_capital };
    bool open = false;
    bool done = false;

    (void)args, (void)data;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        const struct question *q = kinds[i];
        if (answered(call, q))
            done = true;
        else if (mcp_call_need(call, q->key, q->method, json_literal(q->params)))
            open = true;
    }
    if (open) {
        mcp_call_ask(call, NULL);
        return;
    }
    mcp_call_add(call, mcp_textf(done ? "All is answered." : "This client can answer nothing."));
    mcp_call_finish(call);
}

/* Progress, then a question: nothing on the stream may be a request. */
static void call_streaming(struct mcp_call *call, const void *args, void *data)
{
    (void)args;
    mcp_call_progress(call, 50, 100, "about to ask");
    flow_run(call, data);
}

#define ROW(suffix, flow_, text)                                                                   \
    {                                                                                              \
        { .name = "test_input_required_result_" suffix,                                            \
          .description = (text),                                                                   \
          .call = call_flow },                                                                     \
            (flow_)                                                                                \
    }

static const struct {
    struct mcp_tool tool;
    const struct flow *flow;
} tools[] = {
    ROW("elicitation", &flow_name, "Asks for a name."),
    ROW("sampling", &flow_capital, "Asks the client's model."),
    ROW("list_roots", &flow_roots, "Asks for the client's roots."),
    ROW("request_state", &flow_state, "Asks, and wants its state back."),
    ROW("tampered_state", &flow_tampered, "Asks, and notices when its state was changed."),
    ROW("multiple_inputs", &flow_everything, "Asks for three things at once."),
    { { .name = "test_input_required_result_multi_round",
        .description = "Asks twice.",
        .call = call_multi_round },
      NULL },
    { { .name = "test_input_required_result_capabilities",
        .description = "Asks only what the client can answer.",
        .call = call_capabilities },
      NULL },
    { { .name = "test_streaming_elicitation",
        .description = "Reports progress and then asks.",
        .call = call_streaming },
      &flow_name },
};

static const struct mcp_prompt prompt = {
    .name = "test_input_required_result_prompt",
    .description = "Asks for context before it is a prompt.",
    .get = get_flow,
};

void fixture_add_input_required(struct fixture *fixture)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        mcp_server_add_tool(fixture->server, &tools[i].tool, (void *)tools[i].flow);
    mcp_server_add_prompt(fixture->server, &prompt, (void *)&flow_context);
}
