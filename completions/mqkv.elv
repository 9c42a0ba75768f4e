# Completion of mqkv for elvish, as printed by `mqkv completions elvish`.

use str

set edit:completion:arg-completer[mqkv] = {|@words|
  var answer = [(try { (external mqkv) __complete elvish $@words[1..] 2>/dev/null } catch e { })]
  if (> (count $answer) 0) {
    var kind = [(str:split ' ' $answer[0])]
    if (eq $kind[0] words) {
      for line $answer[1..] {
        var word about = (str:split &max=2 "\t" $line)
        edit:complex-candidate $word &display=(if (eq $about '') { put $word } else { put $word'  '$about })
      }
    } elif (eq $kind[0] command) {
      edit:complete-sudo mqkv $@words[$kind[1]..]
    } else {
      edit:complete-filename $words[-1]
    }
  }
}
