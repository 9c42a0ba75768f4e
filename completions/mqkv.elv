# Completion of mqkv for elvish, as printed by `mqkv completions elvish`.

use str

set edit:completion:arg-completer[mqkv] = {|@words|
  var answer = [(try { (external mqkv) __complete elvish (all $words[1..]) 2>/dev/null } catch e { })]
  if (> (count $answer) 0) {
    var kind = [(str:split ' ' $answer[0])]
    if (eq $kind[0] words) {
      for line $answer[1..] {
        var word about = (str:split &max=2 "\t" $line)
        edit:complex-candidate &code-suffix=' ' $word &display=(if (eq $about '') { put $word } else { put $word'  '$about })
      }
    } elif (eq $kind[0] command) {
      edit:complete-sudo mqkv (all $words[(num $kind[1])..])
    } else {
      var kept = $words[-1][..(num $kind[1])]
      edit:complete-filename $words[-1][(num $kind[1])..] | each {|file|
        if (eq $kept '') { put $file } else { edit:complex-candidate &code-suffix=$file[code-suffix] $kept$file[stem] }
      }
    }
  }
}
