#!/bin/sh
# Data plugin `instruct`: it trains on the same tokens as transformers; every form of data is the same conversation; an
# unusable value is an error with file, line and value. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
golden=$WEFT_SOURCE/tests/golden/instruct
mkdir model
cp "$WEFT_SOURCE"/configs/chess/base/* "$golden/chat_template.jinja" model/
cat >run.ini <<INI
[run]
out = out
[model]
plugin = llama
path   = model
[tokenizer]
plugin = bpe
[data]
plugin  = instruct
path    = $golden/conversations.jsonl
context = 256
[train]
steps        = 2
global_batch = 4
micro_batch  = 4
[optimizer]
plugin = adamw
[device]
plugin = cpu
INI
show() { # show FILE argument...: what the rows of a file hold, in printed
    file=$1
    shift
    prints "$weft" data show run.ini --n=99 data.path="$file" "$@"
}
holds() { # holds NAME TEXT: printed has it
    grep -qF -- "$2" printed || failed "$1: \"$2\" is not shown" printed printed.err
}
lacks() { # lacks NAME TEXT
    ! grep -qF -- "$2" printed || failed "$1: \"$2\" is shown" printed
}
says() { # says NAME TEXT: among what is logged
    grep -qF -- "$2" printed.err || failed "$1: does not say \"$2\"" printed.err
}
near() { # near NAME EXPECTED FOUND: within 1e-5 of it
    awk -v a="$2" -v b="$3" 'BEGIN { d = a > b ? a - b : b - a; exit !(a > 0 && d <= 1e-5 * a) }' ||
        failed "$1: expected $2, found $3"
}

# The loss on all answers and on the last ones, packed or not, equals that of transformers with the same ids and masks.
for on in answers last; do
    expected=$(sed -n "s/^$on //p" "$golden/expected.txt")
    for packing in yes no; do
        prints "$weft" eval run.ini data.special_tokens=yes data.loss_on=$on data.packing=$packing --json
        near "loss on $on, packing $packing" "${expected% *}" "$(sed 's/.*"loss": \([0-9.]*\).*/\1/' printed)"
        grep -q "\"tokens\": ${expected#* }," printed || failed "targets of $on are not ${expected#* }" printed
        says "the end token" "the end token </s> (id 2) ends 84 of 84 answers and is trained"
    done
done
prints "$weft" data show run.ini -n 99 data.train_end=no
lacks "train_end = no" "</s>]]"
says "train_end = no" "is not trained (train_end = no)"

# One conversation in every form.
wanted='<user> 1. "e4", e5
<s>[[d4</s>]]'
forms() {
    printf '[{"messages": [{"role":"user","content":"1. \\"e4\\", e5"},{"role":"assistant","content":"d4"}]}]\n' >messages.json
    printf '{"conversations":[{"from":"human","value":"1. \\"e4\\", e5"},{"from":"gpt","value":"d4"}]}\n' >turns.jsonl
    printf '{"instruction":"1. \\"e4\\", e5","input":"","output":"d4"}\n' >alpaca.jsonl
    printf '{"prompt":"1. \\"e4\\", e5","completion":"d4","id":123456789012345678901234567890}\n' >pair.jsonl
    printf 'question,answer\r\n"1. ""e4"", e5",d4\r\n' >table.csv
    printf 'prompt\tresponse\n1. "e4", e5\td4\n' >table.tsv
    printf 'prompt;response\n"1. ""e4"", e5";d4\n' >table.CSV
    printf '\357\273\277{"q":"1. \\"e4\\", e5","a":"d4"}\n' >named.jsonl
}
forms
for file in messages.json turns.jsonl alpaca.jsonl pair.jsonl table.csv table.tsv; do
    show "$file"
    case $(cat printed) in *"$wanted"*) ;; *) failed "$file is another conversation" printed printed.err ;; esac
done
show table.CSV data.separator=semicolon
case $(cat printed) in *"$wanted"*) ;; *) failed "fields between semicolons are another conversation" printed ;; esac
show named.jsonl "data.columns=q, a"
case $(cat printed) in *"$wanted"*) ;; *) failed "named columns are another conversation" printed ;; esac
printf '{"instruction":"Add.","input":"1 2","output":"3","system":"S","history":[["a","b"]]}\n' >whole.jsonl
show whole.jsonl
case $(cat printed) in *"<system> S
<user> a
<s>[[b</s>]]<user> Add.

1 2
<s>[[3</s>]]"*) ;; *) failed "alpaca with all its fields" printed ;; esac
show whole.jsonl data.template=alpaca data.loss_on=last
holds "the alpaca template" "### Response:"
holds "the alpaca template has a place for the input" "### Input:"
lacks "the last answer alone" "[[b"
show pair.jsonl data.system=Be-brief.
holds "a system message of the configuration" "<system> Be-brief."

# Two roles of ShareGPT in messages, nulls of an export, and another pair of names in Alpaca's form.
printf '{"messages":[{"role":"human","content":"1. \\"e4\\", e5"},{"role":"gpt","content":"d4"}]}\n' >roles.jsonl
printf '{"messages":null,"instruction":null,"question":"1. \\"e4\\", e5","answer":"d4"}\n' >nulls.jsonl
printf '{"instruction":"1. \\"e4\\", e5","context":"","response":"d4"}\n' >response.jsonl
printf 'sep=|\n\nprompt|response\n"1. ""e4"", e5"|d4\n' >said.csv
for file in roles.jsonl nulls.jsonl response.jsonl said.csv; do
    show "$file"
    case $(cat printed) in *"$wanted"*) ;; *) failed "$file is another conversation" printed printed.err ;; esac
done

# Empty answers are counted; an answer that calls a tool is not empty.
{
    printf '{"prompt":"a","completion":"b"}\n{"prompt":"a","completion":""}\n{"prompt":"a","completion":""}\n'
    printf '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"id":"1"}]}]}\n'
    printf '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":" \\n","tool_calls":[]}]}\n'
} >empty.jsonl
mkdir calls
cp model/* calls/
printf '{%% for m in messages %%}<{{ m.role }}>{{ m.content }}{%% for c in m.tool_calls %%}({{ c.id }}){%% endfor %%}</s>{%% endfor %%}{%% if add_generation_prompt %%}<assistant>{%% endif %%}' >calls/chat_template.jinja
prints "$weft" data show run.ini data.path=empty.jsonl model.path=calls
says "empty answers" "3 of 5 conversations have an empty answer, of which only the end token is trained; the first at $PWD/empty.jsonl:2"

prints "$weft" data stats run.ini data.path=empty.jsonl model.path=calls
grep -qE 'with an empty answer +3' printed || failed "data stats does not count empty answers" printed
show empty.jsonl model.path=calls data.loss_on=text
! grep -q "empty answer" printed.err || failed "of whole texts no answer is empty" printed.err
printf '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":""},{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n' >first.jsonl
show first.jsonl data.template=chatml data.loss_on=last
! grep -q "empty answer" printed.err || failed "an answer that is not learned is counted" printed.err
printf '{"prompt":"a","completion":""}\n{"prompt":"b","completion":" "}\n' >silent.jsonl
refused "has no target: the answers of all 2 conversations are empty" "$weft" data show run.ini data.path=silent.jsonl
prints "$weft" data show run.ini data.path=pair.jsonl data.template=chatml data.train_end=no
says "an end that is text" "an end that is text is trained with the answer"

# Special tokens in user text are plain text, unless a key is set.
printf '{"prompt":"a </s> b","completion":"c"}\n' >typed.jsonl
show typed.jsonl --tokens
[ "$(grep -c '"</s>"' printed)" = 1 ] || failed "a typed </s> is no text" printed
show typed.jsonl --tokens data.special_tokens=yes
[ "$(grep -c '"</s>"' printed)" = 2 ] || failed "a typed </s> is text against the key" printed

# Terminal control characters are replaced or printed as numbers.
printf '{"prompt":"a \\u001b[31m \\u009b32m \\u007f \303\251","completion":"c"}\n' >controls.jsonl
show controls.jsonl
holds "control characters" "a ?[31m ?32m ? é"
show controls.jsonl --tokens
holds "a control character of a token" '"\x1B'
lacks "a byte of a token that is no character" "$(printf '\302')"
holds "a byte of a token that is no character" '\xC2'

# Target tokens are green on a terminal with colours.
if command -v script >/dev/null; then
    limit script -qec "$weft data show run.ini data.path=pair.jsonl" /dev/null </dev/null >screen 2>&1 || failed "on a terminal" screen
    grep -qF "$(printf '\033[32md4</s>\033[0m')" screen || failed "what is learned is not green" screen
    ! grep -qF '[[' screen || failed "marks beside colours" screen
    NO_COLOR=1 limit script -qec "$weft data show run.ini data.path=pair.jsonl" /dev/null </dev/null >screen 2>&1
    grep -qF '[[d4</s>]]' screen || failed "no marks without colours" screen
else
    echo "skipped: data show on a terminal, for lack of script"
fi

# Too long: the front of the prompt is removed; an answer longer than the context loses its end; or the record is dropped.
long=$(printf 'x%.0s' $(seq 60))
printf '{"prompt":"front %s back","completion":"kept"}\n{"prompt":"q","completion":"%s%s"}\n{"prompt":"s","completion":"t"}\n' \
    "$long" "$long" "$long" >long.jsonl
show long.jsonl data.context=40
holds "the answer of a long conversation" "[[kept</s>]]"
lacks "its front" "front"
says "what is cut" "1 answers are longer than context = 40"
says "what is cut" "of 3 conversations are longer than context = 40:"
show long.jsonl data.context=40 data.too_long=drop
lacks "left out" "kept"
says "left out" "2 of 3 conversations are longer than context = 40 and are dropped"
prints "$weft" data stats run.ini data.path=long.jsonl data.context=40 data.too_long=drop
grep -qE "left out +2$" printed || failed "stats count what is left out" printed

# Several files with weights; a fraction for validation.
printf '{"prompt":"from a","completion":"1"}\n' >a.jsonl
printf '{"prompt":"from b","completion":"2"}\n' >b.jsonl
show a.jsonl "data.files=b.jsonl:3" data.packing=no
[ "$(grep -c '^row' printed)" = 4 ] && [ "$(grep -c 'from b' printed)" = 3 ] || failed "weights of files" printed
mkdir deep
sed "s,^path    = .*,path    = ../a.jsonl\nfiles   = ../b.jsonl:2\, c.jsonl," run.ini | sed 's,^path   = model,path   = ../model,' >deep/run.ini
cp b.jsonl deep/c.jsonl
prints "$weft" config check deep/run.ini
prints "$weft" data show deep/run.ini -n 99 data.packing=no
[ "$(grep -c 'from b' printed)" = 3 ] || failed "files are found from where the configuration lies" printed
prints "$weft" config explain deep/run.ini
grep -qF "$dir/b.jsonl:2,$dir/deep/c.jsonl" printed || failed "files are absolute paths" printed
rm deep/c.jsonl
refused "deep/run.ini:11: [data] files = ../b.jsonl:2, c.jsonl ($dir/deep/c.jsonl): No such file or directory" \
    "$weft" config check deep/run.ini
refused "files: $dir/b.jsonl:x has no weight between 0 and 1000 after its colon" "$weft" data show run.ini data.files=b.jsonl:x
prints "$weft" data show run.ini -n 99 data.validation=5 --validation data.packing=no
[ "$(grep -c '^row' printed)" = 5 ] || failed "five conversations are held out" printed
prints "$weft" data show run.ini -n 99 data.validation=5 data.packing=no data.group_by_length=7
[ "$(grep -c '^row' printed)" = 35 ] || failed "35 conversations are learned" printed

# Sequences of similar length are consecutive; an epoch has each once; the order of groups and in groups is random.
for i in 13 2 19 7 16 4 11 1 9 20 5 14 8 17 3 12 18 6 15 10; do
    printf '{"prompt":"%s","completion":"a"}\n' "$(printf '=%.0s' $(seq $i))"
done >lengths.jsonl
prints "$weft" data show run.ini -n 20 data.path=lengths.jsonl data.packing=no data.group_by_length=4
sed -n 's/^row [0-9]*: 1 document, \([0-9]*\) of .*/\1/p' printed >used
awk 'NR % 4 == 1 { least = most = $1 }
     { seen[$1]++; if ($1 < least) least = $1; if ($1 > most) most = $1; if ($1 != last + 1) drawn++; last = $1 }
     NR % 4 == 0 && most - least > 3 { wide++ }
     END { for (i in seen) n++; exit !(NR == 20 && n == 20 && wide == 0 && drawn > 4) }' used ||
    failed "rows of like length do not follow one another" used
prints "$weft" data show run.ini -n 20 data.path=lengths.jsonl data.packing=no
sed -n 's/^row [0-9]*: 1 document, \([0-9]*\) of .*/\1/p' printed >alone
[ "$(sort -n used)" = "$(sort -n alone)" ] || failed "grouping changes rows" used alone

# Records without a target are counted and located; if all are, that is an error.
printf '{"prompt":"a","completion":"b"}\n{"prompt":"c","completion":""}\n' >some.jsonl
printf '{"messages":[{"role":"user","content":"a"}]}\n' >none.jsonl
show some.jsonl data.template=chatml
printf '{"messages":[{"role":"user","content":"a"}]}\n' >>some.jsonl
show some.jsonl
says "without a target" "1 of 3 conversations have no target and are dropped, the first at $dir/some.jsonl:3"
refused "has no target: none of its 1 conversations has an answer" "$weft" data show run.ini data.path=none.jsonl

# Other keys of a record: a system turn in each form, JSON in strings, numbers beyond 64 bits, parts of text.
printf '{"system":"S","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n' >beside.jsonl
printf '{"system_prompt":"S","conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]}\n' >>beside.jsonl
printf '{"system":"S","instruction":"a","output":"b"}\n{"system":"S","prompt":"a","completion":"b"}\n' >>beside.jsonl
printf '{"system":"S","messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":[{"type":"text","text":""},{"type":"text","text":"b","x":null}]}]}\n' >>beside.jsonl
printf 'system,question,answer\nS,a,b\n' >beside.csv
for file in beside.jsonl beside.csv; do
    show $file data.system=other
    n=$(wc -l <$file)
    [ $file = beside.jsonl ] || n=1
    [ "$(grep -c '^<system> S$' printed)" = "$n" ] && [ "$(grep -cF '<s>[[b</s>]]' printed)" = "$n" ] ||
        failed "$file has other system turns" printed printed.err
done
show beside.csv "data.columns=question, answer" # the other keys are those that were not chosen
holds "a system turn beside named columns" "<system> S"
printf '{%% if tools %%}{{ tools | tojson }}{%% endif %%}{%% for m in messages %%}<{{ m.role }}>{{ m.content }}{%% for c in m.tool_calls %%}{{ c | tojson }}{%% endfor %%}</s>{%% endfor %%}{%% if add_generation_prompt %%}<assistant>{%% endif %%}' >calls/chat_template.jinja
printf '{"tools":"[{\\"n\\":3,\\"big\\":-9223372036854775809}]","messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":"[{\\"x\\":18446744073709551615,\\"y\\":9223372036854775807,\\"z\\":1e2}]"}]}\n' >strings.jsonl
show strings.jsonl model.path=calls
holds "tools in a string" '[{"n": 3, "big": -9223372036854775809}]<user>a</s>'
printf '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{\\"x\\": 18446744073709551616}"}}]}]}\n' >arguments.jsonl
holds "calls in a string" '{"x": 18446744073709551615, "y": 9223372036854775807, "z": 100.0}</s>]]'
show arguments.jsonl model.path=calls
holds "arguments in a string" '"arguments": {"x": 18446744073709551616}'

# A template that reads content as parts gets parts, also for a string. The system turn of this template is a string.
printf '{%% for m in messages %%}<{{ m.role }}>{%% if m.role == "system" %%}{{ m.content }}{%% else %%}{%% for c in m.content %%}{%% if c.type == "text" %%}{{ c.text }}{%% endif %%}{%% endfor %%}{%% endif %%}</s>{%% endfor %%}{%% if add_generation_prompt %%}<assistant>{%% endif %%}' >calls/chat_template.jinja
head -n 5 beside.jsonl | sed -n '1p;5p' >parts.jsonl
show parts.jsonl model.path=calls
[ "$(grep -cF '<system>S</s><user>a</s><assistant>[[b</s>]]' printed)" = 2 ] || failed "a template that reads parts" printed printed.err

# A message's flag includes or excludes it; the position of a template's blocks is irrelevant.
printf '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","%s":%s},{"role":"user","content":"c","weight":0},{"role":"assistant","content":"d","train":true}]}\n' \
    weight 0 train false loss false training false weight 0.0 >flags.jsonl
show flags.jsonl
[ "$(grep -cF '<s>b</s><user> c' printed)" = 5 ] && [ "$(grep -cF '<s>[[d</s>]]' printed)" = 5 ] || failed "flags of messages" printed
show flags.jsonl model.path=calls
[ "$(grep -cF '<assistant>b</s><user>c</s><assistant>[[d</s>]]' printed)" = 5 ] || failed "flags of messages without blocks" printed
printf '{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b","weight":1},{"from":"gpt","value":"d","weight":0}]}\n' >flags.jsonl
show flags.jsonl
holds "a flag of a turn" '<s>[[b</s>]]<s>d'
printf '{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A","weight":0}]}\n' >one.jsonl
printf '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"A!","weight":1},{"role":"user","content":"b"},{"role":"assistant","content":"","weight":0},{"role":"user","content":"c"},{"role":"assistant","content":"C","weight":1}]}\n' >three.jsonl
refused "none of its 1 conversations has an answer" "$weft" data show run.ini data.path=one.jsonl
prints "$weft" data show run.ini data.path=three.jsonl
holds "three flags" '<s>[[A!</s>]]'
says "answers that are learned" "2 of 2 answers"
! grep -q "empty answer" printed.err || failed "an answer that its flag turns off is counted as empty" printed.err
sed 's/,{"role":"user","content":"c"}.*/]}/' three.jsonl >two.jsonl
show two.jsonl
says "answers that are learned" "1 of 1 answers"
show flags.jsonl data.loss_on=text
lacks "an unlearned answer of whole texts" '<s>d</s>]]'

# Fields of a table equal those of Python's csv.
printf 'question,answer\n5" of ""x"",a"b"\n"1"x,"2""3"4"5\n"q\nr, s" ,"t"\n' >quotes.csv
show quotes.csv
holds "quotes inside a field" '<user> 5" of ""x""
<s>[[a"b"</s>]]'
holds "text after quotes" '<user> 1x
<s>[[2"34"5</s>]]'
holds "a line end in quotes" 'q
r, s '

# Errors with file, line and value.
bad() { # bad FILE CONTENT SENTENCE argument...
    file=$1 sentence=$3
    printf "$2" >"$file"
    shift 3
    refused "$sentence" "$weft" data show run.ini data.path="$file" "$@"
}
bad x.jsonl '{"prompt":"a","completion":"b"}\n{"prompt":1,"completion":"b"}\n' 'x.jsonl:2: the field "prompt" is a number and must be a string'
bad x.jsonl '{"prompt":"a","completion":"b"}\n\n' 'x.jsonl:2: the line is empty'
bad x.jsonl '{"prompt":"a","completion":"b","n":123\000}\n' 'x.jsonl:1: not a JSON object: a NUL byte'
bad x.jsonl '{"prompt":"a"\n' 'x.jsonl:1: not a JSON object:'
bad x.jsonl '[1]\n' 'x.jsonl:1: the record is JSON but not an object'
bad x.jsonl '{"text":"a"}\n' "x.jsonl:1: no known form: messages, conversations, instruction and output, prompt and completion, or question and answer; the record's fields: text"
bad x.jsonl '{"text":"a"}\n' 'x.jsonl:1: there is no field "q"; the record' "data.columns=q, a"
bad x.jsonl '{"conversations":[{"from":"dog","value":"a"}]}\n' 'x.jsonl:1: turn 1 of "conversations" is from "dog". Allowed: human, user, gpt,'
bad x.jsonl '{"prompt":"a","completion":"b","meta":1,"n":null}\n' 'x.jsonl:1: the record has keys that are not used: meta. Fix: [data] ignore = meta'
bad x.csv 'question,answer,topic,\na,b,c,4\n' 'x.csv:2: the record has keys that are not used: topic. Fix: [data] ignore = x, topic' data.ignore=x
bad x.jsonl '{"conversations":[{"from":"human","value":"a","lang":"de"}]}\n' 'turn 1 of "conversations" has keys that are not used: lang. Fix:'
bad x.jsonl '{"messages":[{"role":"user","content":"a","lang":"de"}]}\n' 'x.jsonl:1: message 1: the template does not read the key "lang"'
bad x.jsonl '{"messages":[{"role":"usr","content":"a"}]}\n' 'x.jsonl:1: message 1: role = "usr": unknown to the template. Allowed: system,'
for name in alpaca llama2 mistral; do
    bad x.jsonl '{"messages":[{"role":"user","content":"a"},{"role":"tool","content":"b"}]}\n' 'the role tool is not known here; allowed: user, assistant,' data.template=$name
done
bad x.jsonl '{"messages":[{"role":"user","content":"a"}],"tools":[{"a":1}]}\n' 'x.jsonl:1: the template does not read "tools"'
bad x.jsonl '{"system":"S","messages":[{"role":"system","content":"a"}]}\n' 'x.jsonl:1: the record has "system" and a first message of role "system"'
bad x.jsonl '{"messages":[{"role":"user","content":[{"type":"image"}]}]}\n' 'part 1 of the content of message 1 of "messages" is of type "image". Allowed: {"type": "text",'
bad x.jsonl '{"messages":[{"role":"user","content":[{"type":"text","text":"a","m":1}]}]}\n' 'a part of the content has keys that are not used: m.'
bad x.jsonl '{"messages":[{"role":"user","content":7}]}\n' 'the content of message 1 of "messages" is a number'
bad x.jsonl '{"messages":[{"role":"user","content":null}]}\n' 'message 1 of "messages" has no content'
bad x.jsonl '{"messages":[{"role":"assistant","content":"a","weight":0.5}]}\n' '"weight" is not a flag. Allowed: 0, 1, false, true'
bad x.jsonl '{"messages":[{"role":"assistant","content":"a","weight":0,"train":true}]}\n' '"weight" contradicts another flag'
bad x.jsonl '{"messages":[{"role":"user","content":"a","loss":true}]}\n' '"loss" selects a message of role "user"'
bad x.jsonl '{"instruction":"a","output":"b","history":[["a","b","c"]]}\n' 'turn 1 of "history" is not a pair'
bad x.jsonl '{"messages":[{"role":"user","content":"a","name":"bob"}]}\n' 'x.jsonl:1: message 1: the template does not read the key "name"'
printf '{%% for m in messages %%}{{ m.content }}{%% for c in m.tool_calls %%}({{ c.id }}){%% endfor %%}</s>{%% endfor %%}' >calls/chat_template.jinja
bad x.jsonl '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":"[{\\"id\\":\\"1\\",\\"function\\":{\\"note\\":\\"n\\"}}]"}]}\n' \
    'x.jsonl:1: message 2: the template does not read the key "tool_calls.function"' model.path=calls
show x.jsonl model.path=calls data.ignore=tool_calls.function
holds "an ignored key of a call" '[[(1)</s>]]'
printf '{"id":1,"source":"s","prompt":"a","completion":"b"}\n' >x.jsonl
show x.jsonl data.ignore=source
holds "id besides the ignored key" '<user> a'
printf '{"prompt":"a","completion":"b","meta":1,"messages":[{"role":"user","content":"e","lang":"de"},{"role":"assistant","content":"f"}]}\n' >x.jsonl
show x.jsonl "data.ignore=meta, messages"
holds "ignored keys" '<user> a'
show x.jsonl "data.ignore=meta, prompt, completion, lang"
holds "ignored keys" '<user> e'
bad x.jsonl '{"messages":[{"content":"a"}]}\n' 'x.jsonl:1: message 1 of "messages" needs "role", a string'
bad x.json '[\n{"prompt":"a","completion":"b"},\n{"prompt":\n' 'x.json:3: the array ends in the middle of this element'
bad x.json '{"prompt":"a"}' 'x.json:1: the file is not a JSON array'
bad x.json '[{"prompt":"a","completion":"b"}] 1' 'x.json:1: text follows the array'
bad x.csv 'question,answer\n1,2\n1,2,3\n' 'x.csv:3: the row has 3 fields but the header has 2'
bad x.csv 'question,answer\n"1,2\n' 'x.csv:2: a field in quotes is not closed'
bad x.csv 'question,answer\n1,2\n3\n' 'x.csv:3: the row has 1 field but the header has 2'
printf 'question,answer\r\n\r\na,b\r\n\r\n\r\nc,d\r\n\r\n' >x.csv
show x.csv
holds "rows around empty lines" '<s>[[b</s>]]'
holds "rows around empty lines" '<s>[[d</s>]]'
says "empty lines" "x.csv: 3 empty lines between rows skipped, the first is line 2"
bad x.csv 'question;answer\n1;2\n' 'x.csv:1: the first row is one field, "question;answer": if the separator is a semicolon, set [data] separator = semicolon'
bad x.csv 'question,answer,answer\n1,2,3\n' 'x.csv:1: the first row names two columns "answer", number 2 and 3'
# Comparing column names takes linear time: pairwise comparison of 200,000 would take minutes.
awk 'BEGIN { for (i = 0; i < 200000; i++) printf "%sc%d", i ? "," : "", i; print ",question,answer,c7"; print "1" }' >wide.csv
if timeout 60 "$weft" data stats run.ini data.path=wide.csv >log 2>&1 || ! grep -q 'two columns "c7", number 8 and 200003' log; then
    failed "a header of 200,000 columns" log
fi
bad x.csv '\377\376q\0,\0' 'x.csv is UTF-16. Allowed: UTF-8. Fix: '
bad x.jsonl '{"instruction":"a","output":"b","system":7}\n' 'x.jsonl:1: the field "system" is a number and must be a string'
bad x.jsonl '{"prompt":"a","completion":"b","chat_template_kwargs":"x"}\n' 'x.jsonl:1: the field "chat_template_kwargs" is a string that is not JSON'
bad x.jsonl '{"prompt":"a","completion":"b","chat_template_kwargs":[]}\n' 'x.jsonl:1: the field "chat_template_kwargs" is an array and must be an object'
bad x.jsonl '{"prompt":"a","completion":"b","tools":"{}"}\n' 'x.jsonl:1: the field "tools" is an object and must be an array'
bad x.jsonl '{"prompt":"a","completion":"b","tools":["t"]}\n' 'x.jsonl:1: element 1 of "tools" is a string and must be an object'
bad x.csv 'a,b\n1,2\n' 'if the separator is a comma, set [data] separator = comma' data.separator=bar
bad x.txt 'a' 'unknown suffix. Allowed: .json, .jsonl, .csv, .tsv'
bad x.jsonl '{"prompt":"a","completion":"b"}\n' 'unknown chat template nonsuch. Allowed: alpaca' data.template=nonsuch
rm model/chat_template.jinja
refused 'have no chat template' "$weft" data show run.ini
refused "group_by_length = 4 requires packing = no" "$weft" data show run.ini data.group_by_length=4
refused "columns = a is invalid" "$weft" data show run.ini data.columns=a
refused "date = soon is invalid" "$weft" data show run.ini data.date=soon
printf '{{ raise_exception("never") }}' >model/chat_template.jinja
refused 'conversations.jsonl:1: ' "$weft" data show run.ini
grep -q 'line 1: .*: never' log || failed "a template that refuses" log

# weft generate --chat: a line is a turn, with the same template.
cp "$golden/chat_template.jinja" model/
printf 'e4\nd4\n' >input
prints "$weft" generate run.ini --chat --template chatml --tokens 4 --temperature 0 <input
[ "$(wc -l <printed)" -ge 2 ] || failed "two turns have two answers" printed
# The second turn sees the first one and its answer: with a template of contents only, it continues as one text.
cp model/chat_template.jinja kept.jinja
printf '{{ bos_token }}{%% for m in messages %%}{{ m.content }}|{%% endfor %%}' >model/chat_template.jinja
printf 'e4\n' >input
prints "$weft" generate run.ini --chat --tokens 6 --temperature 0 <input
first=$(cat printed)
printf 'e4\nd4\n' >input
prints "$weft" generate run.ini --chat --tokens 6 --temperature 0 <input
both=$(cat printed)
case $both in "$first"*) ;; *) failed "a further turn changes the first answer" printed ;; esac
prints "$weft" generate run.ini --prompt "e4|$first|d4|" --tokens 6 --temperature 0 --json
second=${both#"$first"}
answer=$(sed -n 's/.*"text": *"\([^"]*\)".*/\1/p' printed)
[ "$(printf %s "$second" | tr -d '\n')" = "$(printf %s "$answer")" ] || failed "the second answer is not what follows on both turns: $second" printed
cp kept.jinja model/chat_template.jinja
prints "$weft" generate run.ini --chat --prompt e4 --tokens 4 --temperature 0
refused "--system requires --chat" "$weft" generate run.ini --system x --prompt y
refused "unknown chat template x" "$weft" generate run.ini --chat --template x --prompt y

# A model trained with a named template has it in its files, replacing its own, and needs no name later. A model trained
# with its own template keeps it.
printf '{"prompt":"1. e4","completion":"e5"}\n' >short.jsonl
names="alpaca mistral"
! is_full || names="$names llama2 llama3 chatml gemma"
for name in $names; do
    prints "$weft" train run.ini data.path=short.jsonl data.template=$name run.out=named-$name train.steps=1 train.global_batch=1 \
        train.micro_batch=1 checkpoint.every=1
    cmp -s named-$name/model/chat_template.jinja named-$name/checkpoints/step-1/chat_template.jinja ||
        failed "the checkpoint of $name has another template"
    for path in conversations whole; do
        [ $path = whole ] || cp "$golden/conversations.jsonl" conversations.jsonl
        "$weft" data show run.ini -n 9 data.path=$path.jsonl data.template=$name >named 2>log || failed "$name by name" log
        "$weft" data show run.ini -n 9 data.path=$path.jsonl model.path=named-$name/model >own 2>log ||
            failed "$name of the model's files" log
        cmp -s named own || failed "$name: the model's files give another text" named own
    done
    prints "$weft" generate named-$name --chat --tokens 4 --temperature 0 --prompt e4
    cp printed answer
    prints "$weft" generate named-$name --chat --template $name --tokens 4 --temperature 0 --prompt e4
    cmp -s printed answer || failed "$name: another answer without its name" printed answer
done
prints "$weft" train run.ini data.path=short.jsonl run.out=own-template train.steps=1 train.global_batch=1 train.micro_batch=1
cmp -s "$golden/chat_template.jinja" own-template/model/chat_template.jinja || failed "the model's own template is another now"

# Of several templates in the files, a record with tools uses tool_use, and a name selects any. All are saved with the model,
# unless it was trained with a named template, which replaces them.
mkdir model/additional_chat_templates
printf '{{ bos_token }}{%% for m in messages %%}{{ m.keys()|join(",") }}={{ m.content }}|{{ tools|length }}{%% endfor %%}' \
    >model/additional_chat_templates/tool_use.jinja
printf '{{ bos_token }}{%% for m in messages %%}rag {{ m.content }}|{%% endfor %%}' >model/additional_chat_templates/rag.jinja
printf '{"messages":[{"content":"a","role":"user"},{"role":"assistant","content":"b"}],"tools":[{"type":"function"}]}\n' >tools.jsonl
show tools.jsonl
holds tool_use 'content,role=a|1[[role,content=b|1]]'
show short.jsonl data.template=rag
holds rag 'rag 1. e4|[[rag e5|]]'
refused 'unknown chat template x. Allowed: alpaca, llama2, llama3, chatml, mistral, gemma, and in the tokenizer' \
    "$weft" data show run.ini data.path=short.jsonl data.template=x
for name in own rag chatml; do
    prints "$weft" train run.ini data.path=short.jsonl data.template=$name run.out=several-$name train.steps=1 \
        train.global_batch=1 train.micro_batch=1 checkpoint.every=1
    for saved in model checkpoints/step-1; do
        if [ $name = chatml ]; then
            [ ! -e several-$name/$saved/additional_chat_templates ] || failed "$saved of $name has templates besides its own"
        else
            diff -r model/additional_chat_templates several-$name/$saved/additional_chat_templates >log 2>&1 ||
                failed "$saved of $name has other templates" log
        fi
    done
done
prints "$weft" train run.ini data.path=short.jsonl run.out=several-own train.steps=1 train.global_batch=1 train.micro_batch=1 --overwrite
: >several-own/model/additional_chat_templates/mine.txt
refused additional_chat_templates/mine.txt "$weft" train run.ini data.path=short.jsonl run.out=several-own train.steps=1 --overwrite
rm -r model/additional_chat_templates

# gsm8k, if the assets are available: all records are encoded, and the loss of the first answers equals transformers'.
assets=${WEFT_ASSETS:-$WEFT_SOURCE/../shared/assets}
if [ -e "$assets/data/gsm8k_train_alpaca_format.json" ] && [ -e "$assets/data/gsm8k_test.jsonl" ]; then
    show "$assets/data/gsm8k_train_alpaca_format.json" data.template=alpaca data.context=512
    head -n 200 "$assets/data/gsm8k_test.jsonl" >gsm8k.jsonl
    expected=$(sed -n 's/^gsm8k //p' "$golden/expected.txt")
    for packing in yes no; do
        prints "$weft" eval run.ini data.path=gsm8k.jsonl data.context=512 data.too_long=drop data.special_tokens=yes \
            data.packing=$packing --json
        near "loss on gsm8k, packing $packing" "${expected% *}" "$(sed 's/.*"loss": \([0-9.]*\).*/\1/' printed)"
        grep -q "\"tokens\": ${expected#* }," printed || failed "targets of gsm8k are not ${expected#* }" printed
    done
else
    echo "skipped: gsm8k, which is not among the assets"
fi
[ "$failures" = 0 ]
