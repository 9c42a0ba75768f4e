# Completion of mqkv for PowerShell, as printed by `mqkv completions powershell`.

Register-ArgumentCompleter -Native -CommandName mqkv -ScriptBlock {
    param($current, $line, $cursor)
    $words = @($line.CommandElements | Where-Object { $_.Extent.EndOffset -lt $cursor } | Select-Object -Skip 1 |
        ForEach-Object { if ($_ -is [System.Management.Automation.Language.StringConstantExpressionAst]) { $_.Value } else { "$_" } })
    # An empty argument would be lost on its way to the program; a quoted one is not in any version.
    $answer = @(& (Get-Command mqkv -CommandType Application | Select-Object -First 1) __complete powershell @words "=$current" 2>$null)
    if ($answer.Count -eq 0 -or $answer[0] -ne 'words') { return }
    $answer | Select-Object -Skip 1 | ForEach-Object {
        $word, $about = $_ -split "`t", 2
        $quoted = if ($word -match '[^\w./:=@%+,-]') { "'" + ($word -replace "'", "''") + "'" } else { $word }
        [System.Management.Automation.CompletionResult]::new($quoted, $word, 'ParameterValue', $(if ($about) { $about } else { $word }))
    }
}
