#!/bin/sh
# Configurations written by `weft init` run and fit without changes: for text and JSONL, without weights and
# with a run's, read by config check, plan and train. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

says() { # says FILE TEXT: the file has this line
    grep -qxF -- "$2" "$1" || failed "$1 does not say $2" "$1"
}
runs() { # runs FILE: all commands accept the configuration; every key has a reason above it
    prints "$weft" config check "$1"
    grep -qF "fine for weft train" printed || failed "$1 is not for train" printed
    awk '/^[a-z_]+ = / && before !~ /^#/ { bad = 1 } { before = $0 } END { exit bad }' "$1" || failed "$1: a line without its reason" "$1"
    prints "$weft" plan "$1"
    grep -q '^fits ' printed || failed "$1 does not fit" printed
    # A step has a loss, and the end a model; the last step of the file is the last of its schedule.
    prints "$weft" train "$1" train.steps=2
    grep -q '^step 2/2 ' printed || failed "$1 does not train" printed
    out=$(sed -n 's/^out = //p' "$1")
    [ -e "$(dirname "$1")/$out/model/config.json" ] || failed "$1 writes no model in $out" printed
}

make_model scratch 32 8 56 2 512
make_text 90
mkdir data
mv games.txt data
prints "$weft" init scratch data/games.txt --fresh
grep -q "^run.ini: 8[0-9] documents in " printed || failed "what was written is not told" printed
runs run.ini
says run.ini "document = line"
says run.ini "validation = 0.05"
says run.ini "start = fresh"
says run.ini "plugin = llama"

# A run's directory means its model; a second run has a new directory.
prints "$weft" init runs/scratch data/games.txt --out two.ini
says two.ini "path = $(pwd -P)/runs/scratch/model"
says two.ini "out = runs/model"
prints "$weft" init scratch data/games.txt --fresh -o three.ini
says three.ini "out = runs/scratch-2"

# An existing file is replaced only on request.
cp run.ini kept.ini
refused "run.ini exists. Fix: --overwrite" "$weft" init scratch data/games.txt --fresh
cmp -s run.ini kept.ini || failed "run.ini was changed"
echo "# mine" >run.ini
prints "$weft" init scratch data/games.txt --fresh --overwrite
says run.ini "document = line"
prints "$weft" init scratch data/games.txt --fresh -o -
sed 1,4d printed >a && sed 1,4d three.ini >b
cmp -s a b || failed "- prints another file" a b

# Paragraphs; one line; JSONL by name and by content; the text field.
awk '{ print; if (NR % 3 == 0) print "" }' data/games.txt >data/paragraphs.txt
prints "$weft" init runs/scratch data/paragraphs.txt -o sub.ini
says sub.ini "document = paragraph"
runs sub.ini
tr '\n' ' ' <data/games.txt >data/one.txt
prints "$weft" init runs/scratch data/one.txt -o one.ini
says one.ini "document = file"
says one.ini "validation = none"
says one.ini "context = 128" # from the model
grep -q '^\[eval\]' one.ini && failed "an evaluation of nothing" one.ini
runs one.ini
awk '{ printf "{\"id\": \"g\", \"moves\": \"%s\", \"n\": %d}\n", $0, NR }' data/games.txt >data/games.jsonl
prints "$weft" init runs/scratch data/games.jsonl -o lines.ini
says lines.ini "field = moves"
grep -q '^format' lines.ini && failed "the name says what it is" lines.ini
runs lines.ini
sed 's/"moves"/"text"/' data/games.jsonl >data/games.json
prints "$weft" init runs/scratch data/games.json -o json.ini
says json.ini "format = jsonl"

# Chess games in PGN, by name or by content.
awk '{ printf "[Event \"e\"]\n[Round \"%d\"]\n\n1. e4 {a} e5 2. f4 (2. Nf3 Nc6)%s 1-0\n\n", NR, NR % 2 ? " exf4" : "" }' \
    data/games.txt >data/games.pgn
cp data/games.pgn data/pgn.txt
prints "$weft" init runs/scratch data/games.pgn -o pgn.ini
! grep -qE '^(format|document) = ' pgn.ini || failed "games need no key" pgn.ini
prints "$weft" data show pgn.ini -n 1
grep -qF '1. e4 e5 2. f4' printed || failed "games are not their moves" printed
prints "$weft" init runs/scratch data/pgn.txt -o look.ini
says look.ini "format = pgn"
says json.ini "field = text"
runs json.ini

# Question-answer records, detected by their content.
printf '{"question": "q", "answer": "a%s"}\n' 1 2 3 4 5 6 7 8 >data/asked.jsonl
prints "$weft" init runs/scratch data/asked.jsonl -o asked.ini
says asked.ini "plugin = instruct"
says asked.ini "template = alpaca"
runs asked.ini
sed 's/^/,/; 1s/^,/[/; $s/$/]/' data/asked.jsonl >data/asked.json
prints "$weft" init runs/scratch data/asked.json -o array.ini
says array.ini "plugin = instruct"
grep -q '^format' array.ini && failed "the name says what it is" array.ini
cp data/asked.json data/asked.txt
prints "$weft" init runs/scratch data/asked.txt -o named.ini
says named.ini "format = json"
printf 'id,"prompt",completion\n1,q,a\n2,q,b\n3,q,c\n4,q,d\n' >data/asked.csv
prints "$weft" init runs/scratch data/asked.csv -o table.ini
says table.ini "plugin = instruct"
runs table.ini
grep -q '^separator' table.ini && failed "commas need no key" table.ini
tr , ';' <data/asked.csv >data/europe.CSV
prints "$weft" init runs/scratch data/europe.CSV -o europe.ini
says europe.ini "separator = semicolon"
runs europe.ini
# As spreadsheets save it: with a byte order mark and a "sep=" row.
answers() { # answers FILE CONTENT KEY...: is read as question-answer records, with these keys
    printf "$2" >"data/$1"
    prints "$weft" init runs/scratch "data/$1" -o answers.ini --overwrite
    says answers.ini "plugin = instruct"
    shift 2
    for key in "$@"; do says answers.ini "$key"; done
    prints "$weft" data show answers.ini -n 1 data.validation=none
    grep -qF '[[a' printed || failed "no answer of $key is learned" printed answers.ini
}
rows='q1%sa1\nq2%sa2\nq3%sa3\n'
answers marked.csv "\357\273\277question;answer\r\n$(printf "$rows" ';' ';' ';')" "separator = semicolon"
answers marked.tsv "\357\273\277question\tanswer\n$(printf "$rows" '\t' '\t' '\t')"
answers marked.jsonl '\357\273\277{"question":"q","answer":"a"}\n{"question":"q","answer":"a"}\n'
answers marked.json '\357\273\277[{"question":"q","answer":"a"},{"question":"q","answer":"a"}]'
answers said.csv "sep=;\nquestion;answer\n$(printf "$rows" ';' ';' ';')"
answers late.csv "\n\nquestion,answer\n$(printf "$rows" , , ,)"
answers frage.csv "Frage,\"Antwort\"\n$(printf "$rows" , , ,)" "columns = Frage, Antwort"
answers dolly.jsonl '{"instruction":"i","context":"c","response":"a"}\n{"instruction":"i","context":"","response":"a"}\n'
# Unknown properties are reported.
printf 'eco\tname\tpgn\nA00\tPolish\t1. b4\nA00\tGrob\t1. g4\n' >data/openings.tsv
prints "$weft" init runs/scratch data/openings.tsv -o openings.ini
says openings.ini "plugin = text"
grep -qF 'openings.tsv is a table with the columns eco, name, pgn, without columns known as question and answer' printed.err ||
    failed "a table is learned as text in silence" printed.err
printf '{"title":"t","body":"a long text"}\n{"title":"t","body":"a long text"}\n' >data/bodies.jsonl
prints "$weft" init runs/scratch data/bodies.jsonl -o bodies.ini
grep -qF 'texts in the fields title, body, and only body is trained' printed.err || failed "one field of two is learned in silence" printed.err
printf '[]' >data/none.json
refused "none.json contains no record" "$weft" init runs/scratch data/none.json -o bad.ini
printf '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a%s"}]}\n' 1 2 3 4 >data/turns.jsonl
prints "$weft" init runs/scratch data/turns.jsonl -o turns.ini
says turns.ini "plugin = instruct"
! grep -q '^ignore = ' turns.ini || failed "no key is ignored that is not there" turns.ini

# Keys unused in training are listed, wherever a record has them; the file runs without changes.
turn='{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "rating": 5}'
printf '{"id": "x", "source": "s", "messages": [%s]}\n' "$turn" "$turn" "$turn" >data/more.jsonl
printf '{"messages": [%s], "url": "u", "license": null}\n' "$turn" >>data/more.jsonl
prints "$weft" init runs/scratch data/more.jsonl -o more.ini
[ "$(sed -n 's/^ignore = //p' more.ini | tr -d ' ')" = source,rating,url ] || failed "unused keys are not listed" more.ini
runs more.ini
printf '{"messages": [{"role": "user", "content": "q"}, {"role": "oops", "content": "a"}], "url": "u"}\n' >data/oops.jsonl
refused "oops" "$weft" init runs/scratch data/oops.jsonl -o bad.ini

# Planning finds a configuration that fits: with half the memory, the micro-batch is smaller.
prints "$weft" init scratch data/games.txt --fresh -o whole.ini
bytes=$("$weft" plan whole.ini --json | sed -n '/"fit": {/,/}/s/.*"planned": \([0-9]*\).*/\1/p' | head -n 1)
prints "$weft" init scratch data/games.txt --fresh -o half.ini --fit "$((bytes / 2))B"
prints "$weft" plan half.ini --fit "$((bytes / 2))B"
grep -q '^fits ' printed || failed "half.ini does not fit in half" half.ini printed
cmp -s whole.ini half.ini && failed "nothing was made smaller" half.ini
refused "does not fit" "$weft" init scratch data/games.txt --fresh -o none.ini --fit 100kB
[ ! -e none.ini ] || failed "what does not fit was written"

# Inputs that other commands reject are rejected here, and no file is written.
printf '[{"text": "a"}, {"text": "b"}]' >data/array.json
refused "is an array of JSON" "$weft" init runs/scratch data/array.json -o bad.ini
iconv -f UTF-8 -t UTF-16 data/games.txt >data/wide.txt
refused "is UTF-16" "$weft" init runs/scratch data/wide.txt -o bad.ini
head -c 20000 "$weft" >data/bytes.txt
refused "is no text" "$weft" init runs/scratch data/bytes.txt -o bad.ini
: >data/empty.txt
refused "is an empty file" "$weft" init runs/scratch data/empty.txt -o bad.ini
refused "No such file" "$weft" init runs/scratch data/none.txt -o bad.ini
refused "is neither a model's directory" "$weft" init data data/games.txt -o bad.ini
refused "has neither model.safetensors nor" "$weft" init scratch data/games.txt -o bad.ini
: >scratch/pytorch_model.bin
refused "m.from_pretrained(sys.argv[1], torch_dtype=\"auto\").save_pretrained(sys.argv[1])' " "$weft" init scratch data/games.txt -o bad.ini
rm scratch/pytorch_model.bin
sed 's/"model_type"/"type_of_model"/' scratch/config.json >strange && mkdir stranger && mv strange stranger/config.json
refused "has no model_type" "$weft" init stranger data/games.txt -o bad.ini
echo '{"model_type": "llama",}' >stranger/config.json
refused "stranger/config.json:1:24: is not JSON" "$weft" init stranger data/games.txt -o bad.ini
[ ! -e bad.ini ] || failed "what was refused was written"

# A path with characters that start comments in INI files.
mkdir "a # b"
cp data/games.txt "a # b/x ; y.txt"
prints "$weft" init runs/scratch "a # b/x ; y.txt" -o quoted.ini
runs quoted.ini

# An adapter, from a run or on its own, is continued: on its base as stored, with the added tokens.
prints "$weft" train sub.ini --overwrite run.out=runs/tuned train.steps=2 adapter.plugin=lora adapter.r=3 model.base=nf4 \
    tokenizer.add='<a>,<b>'
rows=$(tensors runs/tuned/model)
for from in runs/tuned runs/tuned/model; do
    prints "$weft" init $from data/paragraphs.txt -o on.ini --overwrite
    says on.ini "path = $(pwd -P)/runs/scratch/model"
    says on.ini "from = $(pwd -P)/runs/tuned/model"
    says on.ini "add = <a>,<b>"
    [ "$(grep -cx 'base = nf4' on.ini)" = $([ $from = runs/tuned ] && echo 1 || echo 0) ] || failed "init $from: how the base is stored" on.ini
    awk '/^[a-z_]+ = / && before !~ /^#/ { bad = 1 } { before = $0 } END { exit bad }' on.ini || failed "on.ini: a line without its reason" on.ini
    prints "$weft" train on.ini --overwrite run.out=runs/on train.steps=1 optimizer.lr=0
    [ "$(tensors runs/on/model)" = "$rows" ] || failed "init $from: another adapter goes on" on.ini
done
refused "runs/tuned is an adapter, which needs its trained base. Fix: remove --fresh, or use its base, $(pwd -P)/runs/scratch/model" \
    "$weft" init runs/tuned data/paragraphs.txt --fresh -o bad.ini
near "an adapter's directory on its base" 1e-9 "$(loss runs/tuned model.base=auto data.path=data/one.txt data.document=file data.validation=none data.context=128)" \
    "$(loss runs/tuned/model data.path=data/one.txt data.document=file data.context=128)"
cp -r runs/tuned/model theirs
sed -i 's|"base_model_name_or_path": "[^"]*"|"base_model_name_or_path": "meta-llama/L"|' theirs/adapter_config.json
for command in "init theirs data/one.txt -o bad.ini" "eval theirs data.path=data/one.txt"; do
    refused "theirs is an adapter of meta-llama/L, which is not a model's directory on this machine. Fix: run weft init BASE DATA" \
        "$weft" $command
done
sed -i 's|"base_model_name_or_path": "[^"]*"|"base_model_name_or_path": null|' theirs/adapter_config.json
refused "theirs/adapter_config.json: base_model_name_or_path is missing" "$weft" init theirs data/one.txt -o bad.ini
[ ! -e bad.ini ] || failed "a refused init wrote bad.ini"
exit "$failures"
