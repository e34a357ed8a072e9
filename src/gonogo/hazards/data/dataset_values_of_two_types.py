from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class DatasetValuesOfTwoTypes(LoggedHazard):
    """One column of the data file has values of two types, or rows with other columns: Arrow can't hold them.
    ## What happens
    "pyarrow.lib.ArrowInvalid: JSON parse error: Column(/messages/[]/content) changed from string to object in row 0";
    "cannot mix list and non-list, non-null values"; "Could not convert '3' with type str: tried to convert to int64";
    "DatasetGenerationCastError: All the data files must have the same columns". Above it stands
    "DatasetGenerationError: An error occurred while generating the dataset".
    ## Why
    datasets reads a file into Arrow, where a column has one type. A field that is a string in one row and an object, a
    list or a number in another has two; "in row 0" counts within a block of the file, not from its beginning. A JSON
    file that is one object, or that holds several objects without a list, is refused in the same words ("Column()
    changed from object to array").
    ## Example
    ```text
    {"messages": [{"role": "user", "content": "hello"}]}
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]}    # wrong: content is a list here
    {"messages": [{"role": "user", "content": "hello"}]}    # right: a string in every row
    ```
    ## Cure
    Write that field in one way in all rows (numbers as strings, a single object as a list of one, a missing value as
    null), or keep it as a JSON string and parse it in the collator. One JSON object a line, in a .jsonl file.
    ## When it is safe
    Where every row has the same keys with the same types.
    ## Sources
    - https://github.com/modelscope/ms-swift/issues/8326: content is a string, and an object in some rows
    - https://github.com/modelscope/ms-swift/issues/2634: object and array, with LLaVA's data
    - https://github.com/hiyouga/LlamaFactory/issues/4353: the same words in LLaMA-Factory
    """

    name = "dataset-values-of-two-types"
    title = Text("A column of the data has values of two types", "数据中某一列的值有两种类型")
    log_words = (
        "changed from",
        "cannot mix list and non-list",
        "tried to convert to",
        "must have the same columns",
        "with type",
        "convert pandas DataFrame to Arrow",
    )
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"JSON parse error: Column\((?P<column>[^)]*)\) (?:changed from|was specified twice|has different type)"
            ),
            Certainty.LIKELY,
            cause=Text(
                "Column({column}) of the JSON file has values of two types; a column of a dataset has one.",
                "JSON 文件的 Column({column}) 有两种类型的值；数据集的一列只能有一种。",
            ),
        ),
        Sign(Pattern(r"cannot mix (?:list and non-list|struct and non-struct), non-null values"), Certainty.LIKELY),
        Sign(
            Pattern(
                r"Could not convert .{1,200} with type \w+: (?:tried to convert to|was not a sequence or "
                r"recognized null"
                r"|was expecting)|Expected bytes, got a '\w+' object"
            )
        ),
        Sign(Pattern(r"All the data files must have the same columns|Couldn't cast array of type"), Certainty.LIKELY),
        Sign(Pattern(r"Failed to convert pandas DataFrame to Arrow Table from file"), Certainty.POSSIBLE),
    )
    cause = Text(
        "A column of the data holds values of several types, or some rows have other columns; Arrow can't hold both.",
        "数据的某一列含有多种类型的值，或某些行的列不同；Arrow 无法同时容纳。",
    )
    cures = (
        Text(
            "Write the field in one way in all rows: strings or numbers, a list always or never, null for what is "
            "missing",
            "所有行用同一种写法：统一为字符串或数字，始终或从不使用列表，缺失值写 null",
        ),
        Text(
            "Find the rows: python -c 'import json, collections; print(collections.Counter(type(json.loads(line)"
            '["FIELD"]).__name__ for line in open("data.jsonl")))\'',
            "查找这些行：python -c 'import json, collections; print(collections.Counter(type(json.loads(line)"
            '["FIELD"]).__name__ for line in open("data.jsonl")))\'',
        ),
    )
    confirm = Text("The named field has another type in some rows", "所指字段在某些行中是另一种类型")
