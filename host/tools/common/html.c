/* host/tools/common/html.c: see html.h. */
#include "tools/common/html.h"

void weft_html_text(FILE *to, const char *text) {
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        switch (c) {
        case '&': (void)fputs("&amp;", to); break;
        case '<': (void)fputs("&lt;", to); break;
        case '>': (void)fputs("&gt;", to); break;
        case '"': (void)fputs("&quot;", to); break;
        case '\'': (void)fputs("&#39;", to); break;
        default: (void)fputc(c < 0x20 || c == 0x7f ? ' ' : c, to);
        }
    }
}

/* Style sheet: one or several rules per line. The ten colours are distinguishable on white and on near black. */
static const char *const style[] = {
    ":root{color-scheme:light dark;--ground:#fcfcfb;--card:#fff;--ink:#1b1d21;--soft:#5c626d;--line:#e4e5e8;"
    "--grid:#ececef;--k0:#3b63c9;--k1:#e2a20f;--k2:#e5604a;--k3:#4fb3a0;--k4:#3c9a4e;--k5:#e0709f;--k6:#9459e0;"
    "--k7:#7fa8ec;--k8:#9c6b4e;--k9:#a3a7af}\n",
    "@media(prefers-color-scheme:dark){:root{--ground:#131418;--card:#1b1d22;--ink:#e9eaed;--soft:#9ba1ac;"
    "--line:#2c2f36;--grid:#282b31;--k0:#6f92f0;--k1:#f0b93a;--k2:#ff8470;--k3:#6cc5b0;--k4:#5fbf70;"
    "--k5:#f192b8;--k6:#b083f5;--k7:#a3c3fa;--k8:#bb8a6d;--k9:#7d828c}}\n",
    "*{box-sizing:border-box}\n",
    "body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 Inter,system-ui,-apple-system,"
    "'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-variant-numeric:tabular-nums;"
    "-webkit-text-size-adjust:100%}\n",
    "main{max-width:1120px;margin:0 auto;padding:40px 24px 64px}\n",
    "h1{font-size:30px;line-height:1.2;letter-spacing:-.02em;margin:0 0 6px;font-weight:650;"
    "overflow-wrap:anywhere}\n",
    "h2{font-size:19px;letter-spacing:-.01em;margin:44px 0 14px;font-weight:620}\n",
    "h3{font-size:14px;margin:0 0 8px;font-weight:600}h3 small,h2 small{font-weight:400;color:var(--soft);"
    "font-size:13px;margin-left:6px;letter-spacing:0}\n",
    "p{margin:0 0 10px}.soft{color:var(--soft)}.mark{color:var(--soft);font-size:13px;margin-bottom:18px}\n",
    ".tiles{display:flex;flex-wrap:wrap;gap:1px;background:var(--line);border:1px solid var(--line);"
    "border-radius:12px;overflow:hidden;margin:26px 0 0}\n",
    ".tile{flex:1 1 190px;background:var(--card);padding:14px 18px}.tile "
    "b{display:block;font-size:22px;font-weight:600;"
    "letter-spacing:-.02em;white-space:nowrap}.tile span{display:block;color:var(--soft);font-size:13px}\n",
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:18px}\n",
    ".card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:16px 18px;"
    "min-width:0}\n",
    ".wide{grid-column:1/-1}svg{display:block;width:100%;height:auto;font:12px Inter,system-ui,sans-serif}\n",
    "svg text{fill:var(--soft)}.grid{stroke:var(--grid);stroke-width:1}.axis{stroke:var(--line);stroke-width:1}"
    "\n",
    ".line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\n",
    ".broad{stroke-width:4.5}\n",
    ".faint{fill:none;stroke:currentColor;stroke-width:1;opacity:.28;stroke-linejoin:round}\n",
    ".dash{fill:none;stroke:currentColor;stroke-width:1.5;stroke-dasharray:2 4;stroke-linecap:round}\n",
    ".dot{fill:var(--card);stroke:currentColor;stroke-width:2}\n",
    ".legend{display:flex;flex-wrap:wrap;gap:4px 16px;color:var(--soft);font-size:13px;margin:8px 0 0;"
    "padding:0;list-style:none}.legend i,th i{display:inline-block;width:10px;height:10px;border-radius:3px;"
    "margin-right:6px;background:currentColor}.legend i.ring{background:none;border:2px solid currentColor;"
    "border-radius:50%}\n",
    ".bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:8px 14px;align-items:center;"
    "font-size:14px}\n",
    ".bars>span:nth-child(3n+1){max-width:240px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}\n",
    ".bars>span:nth-child(3n){text-align:right;color:var(--soft);white-space:nowrap}\n",
    ".bar{position:relative;display:flex;height:20px;border-radius:5px;background:var(--grid)}\n",
    ".bar u{display:block;height:100%;background:currentColor;min-width:0}.bar u:first-child{"
    "border-radius:5px 0 0 5px}\n",
    ".bar em{position:absolute;top:-3px;bottom:-3px;width:2px;background:var(--ink);border-radius:1px}\n",
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}\n",
    "th,td{text-align:left;padding:6px 16px 6px 0;border-bottom:1px solid var(--line);vertical-align:baseline}\n",
    "th{font-weight:600;color:var(--soft);font-size:13px;white-space:nowrap}td.n,th.n{text-align:right}\n",
    "tr:last-child td{border-bottom:0}td.key{white-space:nowrap}code,.mono{font:13px ui-monospace,"
    "SFMono-Regular,Menlo,Consolas,monospace}.value{overflow-wrap:anywhere}.from{color:var(--soft);"
    "overflow-wrap:anywhere}\n",
    "details{margin-top:12px}summary{cursor:pointer;color:var(--soft);font-size:14px}\n",
    ".note{border-left:3px solid var(--k1);padding:6px 14px;margin:8px 0;background:var(--card);"
    "border-radius:0 8px 8px 0}\n",
    "footer{margin-top:52px;color:var(--soft);font-size:13px}\n",
    ".k0{color:var(--k0)}.k1{color:var(--k1)}.k2{color:var(--k2)}.k3{color:var(--k3)}.k4{color:var(--k4)}.k5{"
    "color:var(--k5)}.k6{color:var(--k6)}.k7{color:var(--k7)}.k8{color:var(--k8)}.k9{color:var(--k9)}\n",
    "@media print{main{padding:0}.card,.tile{break-inside:avoid}}\n",
    "@media(max-width:560px){main{padding:24px 14px 48px}h1{font-size:24px}.wide{overflow-x:auto}.wide "
    "svg{min-width:640px}.wide svg svg{min-width:0}.bars{grid-template-columns:1fr}"
    ".bars>span:nth-child(3n){text-align:left}}\n",
};

void weft_html_style(FILE *to) {
    for (size_t i = 0; i < sizeof style / sizeof *style; i++) (void)fputs(style[i], to);
}

void weft_html_begin(FILE *to, const char *title) {
    (void)fputs("<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
                "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n<title>",
                to);
    weft_html_text(to, title);
    (void)fputs(" - Weft</title>\n<style>\n", to);
    weft_html_style(to);
    (void)fputs("</style></head>\n<body><main>\n", to);
}

void weft_html_tile(FILE *to, const char *value, const char *about) {
    (void)fputs("<div class=tile><b>", to);
    weft_html_text(to, value);
    (void)fputs("</b><span>", to);
    weft_html_text(to, about);
    (void)fputs("</span></div>\n", to);
}
